"""Comparing runs: real runs in pairs, whatever state they are in, and what must not be compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from anyio import to_thread

from agentcompass import Comparison, RunComparison, compare_runs
from agentcompass.benchmarks.fake import FakeBenchmark
from agentcompass.engine import registry
from agentcompass.engine.result import RunResult
from agentcompass.errors import ConfigError, HarnessError, SessionOpenError
from agentcompass.protocols import Message, Outcome, Reply, Session, Task, Trial, Verdict
from agentcompass.records import Usage

from .lab import RIGHT, WRONG, Agent, Lab, answer_right

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def anyio_backend() -> str:
    """One is enough: files are compared, and how they came about is tested elsewhere."""
    return "asyncio"


def passing(*numbers: int) -> Agent:
    """Return an agent that solves the tasks of these numbers only."""

    async def agent(trial: Trial) -> Outcome:
        return RIGHT if number_of(trial) in numbers else WRONG

    return agent


def number_of(trial: Trial) -> int:
    return int(trial.task.id[1:])


async def run(lab: Lab, agent: Agent, *, tasks: int = 8, **options: Any) -> RunResult:
    return await lab.run(agent, benchmark_params={"tasks": tasks}, **options)


def folder(result: RunResult) -> Path:
    assert result.paths is not None
    return Path(result.paths.run_dir)


async def compare_paths(*paths: Path, allow: Collection[str] = ()) -> Comparison:
    return await to_thread.run_sync(partial(compare_runs, *paths, allow=allow))


async def compare(a: RunResult, b: RunResult, *, allow: Collection[str] = ()) -> RunComparison:
    [pair] = (await compare_paths(folder(a), folder(b), allow=allow)).pairs
    return pair


# --- numbers ----------------------------------------------------------------------------------------


async def test_tasks_gained_and_lost_are_told_b_minus_a(lab: Lab) -> None:
    """The difference of the scores is that of the counts, and a pass or fail per task is tested exactly."""
    a = await run(lab, passing(0, 1, 2))
    b = await run(lab, passing(1, 2, 3, 4, 5))
    pair = await compare(a, b)
    assert [task.task_id for task in pair.gained] == ["t0003", "t0004", "t0005"]
    assert [(task.task_id, task.a, task.b) for task in pair.lost] == [("t0000", 1.0, 0.0)]
    assert (pair.a.score, pair.b.score, pair.difference.value) == (3 / 8, 5 / 8, 2 / 8)
    assert pair.difference.method == "exact_mcnemar"
    assert pair.difference.p == pair.p_corrected == pytest.approx(0.625)
    assert pair.better is None
    assert pair.difference.further_tasks
    assert (pair.bound_low, pair.bound_high) == (2 / 8, 2 / 8)


async def test_clear_difference_is_settled(lab: Lab) -> None:
    """Twelve of twelve against none is no chance; the other way round it is mirrored."""
    a = await run(lab, passing(), tasks=12)
    b = await run(lab, answer_right, tasks=12)
    pair, mirrored = await compare(a, b), await compare(b, a)
    assert (pair.better, mirrored.better) == ("b", "a")
    assert pair.difference.further_tasks == 0
    assert mirrored.difference.value == -1.0
    assert mirrored.gained == ()
    assert len(mirrored.lost) == 12


async def test_several_attempts_are_compared_by_the_means_of_tasks(lab: Lab) -> None:
    """Attempts of one task are one cluster; unequal k is compared and said."""

    async def once(trial: Trial) -> Outcome:
        return RIGHT if trial.attempt == 1 else WRONG

    a, b = await run(lab, once, k=2), await run(lab, answer_right, k=3)
    pair = await compare(a, b)
    assert pair.difference.method == "paired_t"
    assert pair.difference.value == 0.5
    assert [(field.field, field.a, field.b) for field in pair.differs] == [("k", 2, 3)]
    assert pair.notes == ("attempts per task: 2 in A, 3 in B; the means over them are compared",)


async def test_any_of_k_is_one_pass_or_fail(lab: Lab) -> None:
    """With early stop a task is passed or failed once, whatever the attempts; other k is another score."""

    async def second(trial: Trial) -> Outcome:
        return RIGHT if trial.attempt == 2 else WRONG

    a, b = await run(lab, passing(), k=2, strategy="pass"), await run(lab, second, k=2, strategy="pass")
    assert (await compare(a, b)).difference.method == "exact_mcnemar"
    assert len((await compare(a, b)).gained) == 8
    other_k = await run(lab, second, k=3, strategy="pass")
    with pytest.raises(ConfigError, match="k: 2 in A, 3 in B"):
        await compare(a, other_k)
    assert [field.field for field in (await compare(a, other_k, allow=["k"])).allowed] == ["k"]


async def test_missing_tasks_are_left_out_and_bounded(lab: Lab) -> None:
    """Lost to infrastructure on either side: no score there, and bounds of what it could have been."""

    async def unlucky(trial: Trial) -> Outcome:
        if number_of(trial) in {6, 7}:
            raise SessionOpenError("no room")
        return RIGHT

    a, b = await run(lab, passing(0, 7), max_retries=0), await run(lab, unlucky, max_retries=0)
    pair = await compare(a, b)
    assert (pair.planned, pair.compared, pair.b.evaluated) == (8, 6, 6)
    assert pair.difference.value == pytest.approx(5 / 6)
    assert (pair.bound_low, pair.bound_high) == pytest.approx((4 / 8, 6 / 8))


async def test_missing_attempts_widen_the_bounds(lab: Lab) -> None:
    """Of a task with one of two attempts the mean of what is there counts."""

    async def unlucky(trial: Trial) -> Outcome:
        if trial.attempt == 2:
            raise SessionOpenError("no room")
        return RIGHT

    a = await run(lab, passing(), k=2)
    b = await run(lab, unlucky, k=2, max_retries=0)
    pair = await compare(a, b)
    assert pair.difference.value == 1.0
    assert (pair.bound_low, pair.bound_high) == (0.5, 1.0)


async def test_nothing_evaluated_in_both_gives_no_difference(lab: Lab) -> None:
    """All that can be said is that everything is possible."""

    async def unlucky(trial: Trial) -> Outcome:
        raise SessionOpenError("no room")

    pair = await compare(await run(lab, answer_right), await run(lab, unlucky, max_retries=0))
    assert (pair.compared, pair.difference.value, pair.difference.p) == (0, None, 1.0)
    assert (pair.bound_low, pair.bound_high) == (-1.0, 0.0)
    assert pair.a.score is None


async def test_broken_agents_have_failed(lab: Lab) -> None:
    """As in the score of the run."""

    async def broken(trial: Trial) -> Outcome:
        raise HarnessError("crash")

    assert (await compare(await run(lab, answer_right), await run(lab, broken))).difference.value == -1.0


async def test_only_tasks_of_both_plans_are_compared(lab: Lab) -> None:
    """A smaller limit is no missing data."""
    pair = await compare(await run(lab, answer_right), await run(lab, answer_right, limit=3))
    assert (pair.a.tasks, pair.b.tasks, pair.planned, pair.compared) == (8, 3, 3, 3)
    assert (pair.bound_low, pair.bound_high) == (0.0, 0.0)


# --- cost and time ----------------------------------------------------------------------------------

PRICED = {"model_prices": {"input": 1.0, "output": 2.0}}


def talkative(tokens: int) -> Callable[[Any], Reply]:
    def answer(messages: Any) -> Reply:
        return Reply(text="ok", usage=Usage(input_tokens=tokens, output_tokens=tokens))

    return answer


async def ask(trial: Trial) -> Outcome:
    assert trial.model is not None
    reply = await trial.model.complete([Message(role="user", content=trial.task.prompt)])
    return Outcome(answer=reply.text)


async def run_asking(lab: Lab, tokens: int, **options: Any) -> RunResult:
    return await run(
        lab,
        ask,
        needs_model=True,
        model=f"m{tokens}",
        model_api_protocol="scripted",
        model_params={"script": talkative(tokens)},
        **options,
    )


async def test_cost_is_that_of_the_tasks_compared(lab: Lab) -> None:
    """A run of more tasks does not look dearer."""
    pair = await compare(
        await run_asking(lab, 1000, **PRICED), await run_asking(lab, 3000, limit=2, **PRICED)
    )
    assert (pair.a.model_calls, pair.a.input_tokens, pair.b.output_tokens) == (2, 2000, 6000)
    assert (pair.a.cost_usd, pair.b.cost_usd) == pytest.approx((0.006, 0.018))
    assert ("model.id", "m1000", "m3000") in [(field.field, field.a, field.b) for field in pair.differs]


async def test_unknown_price_stays_unknown(lab: Lab) -> None:
    """Nor is it 0 when some trials have one."""
    partly = await run_asking(lab, 1000, limit=2, run_id="partly", **PRICED)
    resumed = await run_asking(lab, 1000, run_id="partly")
    assert resumed.run_id == partly.run_id
    pair = await compare(resumed, await run_asking(lab, 1000))
    assert (pair.a.cost_usd, pair.b.cost_usd) == (None, None)
    assert pair.a.input_tokens == 8000


# --- runs of any state ------------------------------------------------------------------------------


async def test_stopped_run_is_compared_on_what_it_has(lab: Lab) -> None:
    """What was never started is missing."""

    async def stopping(trial: Trial) -> Outcome:
        if number_of(trial) == 3:
            assert lab.stop is not None
            lab.stop.request()
        return RIGHT

    a = await run(lab, answer_right)
    b = await run(lab, stopping, task_concurrency=1)
    pair = await compare(a, b)
    assert 3 <= pair.compared < 8
    assert pair.planned == 8
    assert pair.bound_low < 0 == pair.bound_high


async def test_running_run_is_compared_on_what_it_has(lab: Lab) -> None:
    """Asked from inside its last attempt: the records before it are on disk."""
    a = await run(lab, passing())
    pairs: list[RunComparison] = []

    async def looking(trial: Trial) -> Outcome:
        if number_of(trial) == 7:
            pairs.extend((await compare_paths(folder(a), folder(a).with_name("live"))).pairs)
        return RIGHT

    await run(lab, looking, task_concurrency=1, run_id="live")
    assert pairs[0].planned == 8
    assert pairs[0].compared >= 5
    assert pairs[0].difference.value == 1.0


async def test_damaged_lines_cost_their_own_trials(lab: Lab) -> None:
    """A flipped byte in one line, a torn last line, and a lost plan; all is said."""
    a, b = await run(lab, answer_right), await run(lab, passing())
    journal = folder(b) / "attempts.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[0] = lines[0].replace(b"plan", b"blan")
    lines[2] = lines[2].replace(b"trial", b"trail")
    journal.write_bytes(b"".join(lines)[:-9])
    pair = await compare(a, b)
    assert (pair.planned, pair.compared) == (6, 6)
    assert pair.notes == ("damaged lines in the journal of B, left out: 3",)


async def test_trials_taken_over_by_reuse_are_told(lab: Lab) -> None:
    """The same trial on both sides cannot differ; equal run ids elsewhere are no such thing."""
    a = await run(lab, passing(0), limit=4)
    b = await run(lab, answer_right, reuse_run_id=a.run_id)
    assert (await compare(a, b)).notes == (
        "tasks with trials that both runs have by reuse, which cannot differ: 4",
    )


# --- what must not be compared ----------------------------------------------------------------------


class Scalar(FakeBenchmark):
    """Gives each answer the part of the score that it names; other tasks than those of ``fake``."""

    def load(self, data_dir: Path) -> Iterator[Task]:
        for task in super().load(data_dir):
            yield Task(id=task.id, prompt="How much?", reference="1")

    def verifier(self) -> Any:
        return ScalarVerifier()


class ScalarVerifier:
    environment: ClassVar[Literal["none"]] = "none"

    async def verify(self, task: Task, outcome: Outcome, session: Session | None) -> Verdict:
        return Verdict(score=float(outcome.answer or 0))


@pytest.fixture
def scalar_is_registered() -> Iterator[None]:
    before = {key: dict(value) for key, value in registry._registered.items()}
    registry.benchmark("scalar")(Scalar)
    yield
    registry._registered.clear()
    registry._registered.update(before)


def answering(answer: str) -> Agent:
    async def agent(trial: Trial) -> Outcome:
        return Outcome(answer=answer)

    return agent


@pytest.mark.usefixtures("scalar_is_registered")
async def test_scalar_scores_are_compared_by_their_means(lab: Lab) -> None:
    """Part of a score is no pass or fail, even with one attempt."""
    a = await run(lab, answering("0.25"), benchmark="scalar")
    b = await run(lab, answering("0.5"), benchmark="scalar")
    pair = await compare(a, b)
    assert (pair.difference.value, pair.difference.method) == (0.25, "paired_t")
    assert len(pair.gained) == 8


@pytest.mark.usefixtures("scalar_is_registered")
async def test_different_benchmarks_are_refused_and_marked_if_allowed(lab: Lab) -> None:
    """The message names every field with both values and how to allow it; so do the findings."""
    a, b = await run(lab, answer_right), await run(lab, answering("0.5"), benchmark="scalar")
    with pytest.raises(ConfigError) as refused:
        await compare(a, b)
    lines = str(refused.value).splitlines()
    assert lines[1:3] == [
        "  benchmark.id: 'fake' in A, 'scalar' in B",
        "  scale: 'pass or fail' in A, 'scalar' in B",
    ]
    assert lines[3].startswith("  tasks.t0000: '")
    assert lines[-1].endswith(
        "--allow benchmark --allow scale --allow tasks, or allow=['benchmark', 'scale', 'tasks']"
    )
    assert len(refused.value.findings) == 10
    pair = await compare(a, b, allow=["benchmark", "scale", "tasks"])
    assert [field.field for field in pair.allowed[:2]] == ["benchmark.id", "scale"]
    assert await compare(a, b, allow=["all"]) == pair
    with pytest.raises(ConfigError, match="scale"):
        await compare(a, b, allow=["benchmark", "tasks"])


async def test_benchmark_parameters_must_agree(lab: Lab) -> None:
    """Allowed one by one, or all below a name."""
    a, b = await run(lab, answer_right, tasks=4), await run(lab, answer_right, tasks=5)
    with pytest.raises(ConfigError, match=r"benchmark\.params\.tasks: 4 in A, 5 in B"):
        await compare(a, b)
    for name in ("benchmark.params.tasks", "benchmark.params", "benchmark"):
        [field] = (await compare(a, b, allow=[name])).allowed
        assert (field.field, field.a, field.b) == ("benchmark.params.tasks", 4, 5)
    with pytest.raises(ConfigError, match="tasks"):
        await compare(a, b, allow=["benchmark.params.task"])


async def test_strategies_must_agree(lab: Lab) -> None:
    """The mean of two attempts is not any of two."""
    a, b = await run(lab, answer_right, k=2), await run(lab, answer_right, k=2, strategy="pass")
    with pytest.raises(ConfigError, match="strategy: 'avg' in A, 'pass' in B"):
        await compare(a, b)


async def test_runs_without_a_common_task_are_refused(lab: Lab) -> None:
    """Even if everything is allowed: there is nothing to compare."""
    a = await lab.run(benchmark_params={"tasks": 4, "sample_ids": ["t0001"]})
    b = await lab.run(benchmark_params={"tasks": 4, "sample_ids": ["t0002", "t0003"]})
    with pytest.raises(ConfigError, match=r"no task in common: 1 planned in A, 2 in B"):
        await compare(a, b, allow=["all"])


async def test_wrong_arguments_are_refused(lab: Lab) -> None:
    """One path, the same run twice, a folder without runs, an unknown field."""
    a = folder(await run(lab, answer_right))
    with pytest.raises(ConfigError, match="1 path was given"):
        await compare_paths(a)
    with pytest.raises(ConfigError, match="named twice"):
        await compare_paths(a, a.parent / "." / a.name)
    with pytest.raises(ConfigError, match="is no run directory"):
        await compare_paths(a, a / "details")
    with pytest.raises(ConfigError, match="did you mean 'benchmark'"):
        await compare_paths(a, a, allow=["benchmarks"])
    with pytest.raises(ConfigError, match=r"give a list of fields, e\.g\. \['tasks'\]"):
        await compare_paths(a, a, allow="tasks")


# --- several pairs ----------------------------------------------------------------------------------


async def test_p_values_of_several_pairs_are_corrected(lab: Lab) -> None:
    """What would be settled alone is not among three; a pair without data does not count."""

    async def unlucky(trial: Trial) -> Outcome:
        raise SessionOpenError("no room")

    nothing, some = await run(lab, passing()), await run(lab, passing(0, 1, 2, 3, 4, 5))
    lost = await run(lab, unlucky, max_retries=0)
    assert (await compare(nothing, some)).better == "b"
    both = await compare_paths(*map(folder, (nothing, some, some, nothing, nothing, lost)))
    assert [pair.difference.p for pair in both.pairs] == pytest.approx([0.03125, 0.03125, 1.0])
    assert [pair.p_corrected for pair in both.pairs] == pytest.approx([0.0625, 0.0625, 1.0])
    assert [pair.better for pair in both.pairs] == [None, None, None]


@pytest.mark.usefixtures("scalar_is_registered")
async def test_folders_are_paired_by_benchmark(lab: Lab, tmp_path: Path) -> None:
    """The latest run of each request; what has no counterpart is named."""
    results = {side: tmp_path / side for side in "ab"}
    await run(lab, passing(), results_dir=results["a"])
    await run(lab, answering("0.5"), benchmark="scalar", results_dir=results["a"])
    await run(lab, passing(), results_dir=results["b"], run_id="0-older")
    latest = await run(lab, answer_right, results_dir=results["b"])
    both = await compare_paths(results["a"], results["b"])
    [pair] = both.pairs
    assert (pair.benchmark, pair.b.run_id, pair.better) == ("fake", latest.run_id, "b")
    assert len(both.unmatched) == 1
    assert "scalar" in both.unmatched[0]
    with pytest.raises(ConfigError, match="have no benchmark in common: scalar in A, fake in B"):
        await compare_paths(Path(both.unmatched[0]), results["b"])


async def test_ambiguous_folders_are_refused(lab: Lab, tmp_path: Path) -> None:
    """Two requests of one benchmark on one side: a person has to say which is meant."""
    a, b = tmp_path / "a", tmp_path / "b"
    await run(lab, passing(), results_dir=a)
    for number in (1, 2):
        (b / f"request-{number}").mkdir(parents=True)
        other = await run(lab, answer_right, results_dir=tmp_path / f"b{number}")
        folder(other).rename(b / f"request-{number}" / other.run_id)
    with pytest.raises(ConfigError, match=r"not clear which runs of 'fake' belong together.*A1 B1 A2 B2"):
        await compare_paths(a, b)


async def test_result_is_plain_data(lab: Lab) -> None:
    """Like the other results: items by name, and everything as JSON would have it."""
    a, b = await run(lab, passing(0)), await run(lab, passing(1))
    comparison: Comparison = await compare_paths(folder(a), folder(b))
    assert comparison["pairs"][0]["gained"] == [{"task_id": "t0001", "a": 0.0, "b": 1.0}]
    assert comparison.to_dict()["pairs"][0]["a"]["cost_usd"] is None
