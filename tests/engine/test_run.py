"""Whole runs with scripted agents: what becomes of every kind of trial."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from agentcompass.clock import ManualClock, utc_text
from agentcompass.environments.fake import FakeParams, FakeSession
from agentcompass.errors import HarnessError, SessionOpenError, VerifierError
from agentcompass.protocols import ExecResult, Outcome, Trial
from agentcompass.records import (
    CommandStep,
    NoteStep,
    OutcomeClass,
    PhaseChanged,
    ProgressEvent,
    RunStatus,
    TrialProgressed,
)

from .lab import RIGHT, WRONG, Gauge, Lab, answer_right, trials

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_every_file_is_there(lab: Lab) -> None:
    """A finished run leaves run.json, journal, details, metrics, summary, progress and log."""
    result = await lab.run(benchmark_params={"tasks": 3})
    assert result.status is RunStatus.COMPLETED
    assert result.metrics is not None
    assert result.metrics.score.value == 1.0
    names = {path.name for path in Path(result["paths"]["run_dir"]).iterdir()}  # noqa: ASYNC240
    assert names >= {
        "run.json",
        "attempts.jsonl",
        "details",
        "metrics.json",
        "summary.md",
        "progress.jsonl",
        "progress.json",
        "run.log",
    }


async def test_result_reads_like_a_mapping(lab: Lab) -> None:
    """Attributes are typed; the same by name is plain JSON-like data."""
    result = await lab.run()
    assert result.metrics is not None
    assert result["metrics"]["score"]["value"] == result.metrics.score.value
    assert json.loads(json.dumps(result.to_dict()))["status"] == "completed"
    with pytest.raises(KeyError, match="metrics"):
        result["metricks"]


async def test_wrong_answers_are_verdicts(lab: Lab) -> None:
    """A wrong answer is evaluated, not missing."""

    async def agent(trial: Trial) -> Outcome:
        return RIGHT if trial.task.id == "t0000" else WRONG

    result = await lab.run(agent, benchmark_params={"tasks": 4})
    assert result.status is RunStatus.COMPLETED
    assert result.metrics is not None
    assert result.metrics.score.value == 0.25
    assert result.metrics.score.coverage == 1.0


async def test_infrastructure_failure_is_missing_data(lab: Lab) -> None:
    """4 right, 2 wrong, 4 lost to infrastructure: 4/6 with bounds [0.4, 0.8]."""

    async def agent(trial: Trial) -> Outcome:
        number = int(trial.task.id[1:])
        if number < 4:
            return RIGHT
        if number < 6:
            return WRONG
        raise SessionOpenError("no room") if number % 2 else VerifierError("no file")

    result = await lab.run(agent, benchmark_params={"tasks": 10}, max_retries=0)
    assert result.status is RunStatus.PARTIAL
    assert result.metrics is not None
    score = result.metrics.score
    assert score.value == pytest.approx(4 / 6)
    assert (score.evaluated, score.planned) == (6, 10)
    assert score.bound_low == pytest.approx(0.4)
    assert score.bound_high == pytest.approx(0.8)


async def test_run_of_infrastructure_failures_has_no_score(lab: Lab) -> None:
    """Nothing evaluated means no score, never 0."""

    async def agent(trial: Trial) -> Outcome:
        raise SessionOpenError("no room")

    result = await lab.run(agent, max_retries=0)
    assert result.status is RunStatus.FAILED
    assert result.metrics is not None
    assert result.metrics.score.value is None


async def test_hanging_agent_costs_only_itself(lab: Lab) -> None:
    """An agent that waits for ever, and swallows its first cancellation, ends at its deadline."""

    async def agent(trial: Trial) -> Outcome:
        if trial.task.id == "t0002":
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                await anyio.sleep_forever()
        return RIGHT

    with anyio.fail_after(10):
        result = await lab.run(agent, benchmark_params={"tasks": 6}, task_timeout_seconds=0.1)
    assert result.status is RunStatus.COMPLETED
    by_task = {record.task_id: record for record in trials(result)}
    assert by_task["t0002"].outcome is OutcomeClass.TIMED_OUT
    assert by_task["t0002"].score == 0.0
    assert sum(record.outcome is OutcomeClass.COMPLETED for record in by_task.values()) == 5


async def test_answer_at_the_last_moment_is_kept(lab: Lab) -> None:
    """An agent that returns in spite of its deadline has succeeded."""

    async def agent(trial: Trial) -> Outcome:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return RIGHT
        return WRONG

    result = await lab.run(agent, task_timeout_seconds=0.05, benchmark_params={"tasks": 1})
    assert trials(result)[0].outcome is OutcomeClass.COMPLETED


async def test_steps_survive_the_deadline(lab: Lab) -> None:
    """What the agent did before it was cut is in the details."""

    async def agent(trial: Trial) -> Outcome:
        for number in range(5):
            trial.trajectory.add(NoteStep(text=f"step {number}"))
        await anyio.sleep_forever()
        return WRONG

    result = await lab.run(agent, task_timeout_seconds=0.05, benchmark_params={"tasks": 1})
    [record] = trials(result)
    assert result.paths is not None
    detail = json.loads((Path(result.paths.run_dir) / record.details).read_text())
    assert [step["text"] for step in detail["steps"]] == [f"step {number}" for number in range(5)]


async def test_broken_agent_counts_as_failed(lab: Lab) -> None:
    """A harness error is the agent's fault: evaluated as 0, and not retried by default."""

    async def agent(trial: Trial) -> Outcome:
        raise HarnessError("the agent crashed")

    result = await lab.run(agent, benchmark_params={"tasks": 2})
    assert result.status is RunStatus.COMPLETED
    assert result.metrics is not None
    assert result.metrics.score.value == 0.0
    assert {record.outcome for record in trials(result)} == {OutcomeClass.AGENT_ERROR}


async def test_bug_in_a_component_is_recorded_with_its_traceback(lab: Lab) -> None:
    """Any exception becomes a record; its siblings go on."""

    async def agent(trial: Trial) -> Outcome:
        if trial.task.id == "t0001":
            raise KeyError("odd")
        return RIGHT

    result = await lab.run(agent)
    by_task = {record.task_id: record for record in trials(result)}
    failure = by_task["t0001"].failure
    assert failure is not None
    assert by_task["t0001"].outcome is OutcomeClass.INTERNAL_ERROR
    assert "KeyError: 'odd'" in failure.traceback
    assert by_task["t0000"].score == by_task["t0002"].score == 1.0


async def test_error_inside_the_agents_task_group_keeps_its_class(lab: Lab) -> None:
    """A single error that a task group has wrapped is classified by what it is."""

    async def agent(trial: Trial) -> Outcome:
        async with anyio.create_task_group() as group:

            async def child() -> None:
                raise HarnessError("inside")

            group.start_soon(child)
        return RIGHT

    result = await lab.run(agent, benchmark_params={"tasks": 1})
    assert trials(result)[0].outcome is OutcomeClass.AGENT_ERROR


async def test_environment_that_fails_for_one_task_costs_one_task(lab: Lab) -> None:
    """Whatever opening raises, the siblings run."""

    async def explode_once() -> None:
        if lab.environments[-1].statistics().attempts == 2:
            raise ValueError("no such resource")

    result = await lab.run(needs_session=True, environment=FakeParams(on_open=explode_once), max_retries=0)
    outcomes = sorted(record.outcome for record in trials(result))
    assert outcomes == [OutcomeClass.COMPLETED, OutcomeClass.COMPLETED, OutcomeClass.INTERNAL_ERROR]


async def test_lost_session_is_an_infrastructure_error(lab: Lab) -> None:
    """A sandbox that dies is never ordinary output."""

    async def agent(trial: Trial) -> Outcome:
        await trial.session.exec("echo ok")
        await trial.session.exec("echo ok")
        return RIGHT

    result = await lab.run(
        agent,
        needs_session=True,
        environment=FakeParams(lost_at_exec=2),
        max_retries=0,
        benchmark_params={"tasks": 1},
    )
    [record] = trials(result)
    assert record.outcome is OutcomeClass.INFRA_ERROR
    assert record.failure is not None
    assert record.failure.error == "SessionLostError"


async def test_opening_that_hangs_ends_at_its_deadline(lab: Lab) -> None:
    """A provider that never answers is an error of the open phase."""
    result = await lab.run(
        needs_session=True,
        environment=FakeParams(on_open=anyio.sleep_forever),
        open_timeout_seconds=0.05,
        max_retries=0,
        benchmark_params={"tasks": 1},
    )
    [record] = trials(result)
    assert record.failure is not None
    assert (record.failure.error, record.failure.phase) == ("PhaseTimeoutError", "open")


async def test_failed_close_keeps_the_verdict(lab: Lab) -> None:
    """A session that cannot be closed properly costs no finished result."""

    async def fail() -> None:
        raise SessionOpenError("cannot remove")

    result = await lab.run(
        needs_session=True, environment=FakeParams(on_close=fail), benchmark_params={"tasks": 1}
    )
    assert trials(result)[0].score == 1.0


@pytest.mark.parametrize("cap", [1, 2, 5])
async def test_task_concurrency_is_never_exceeded(lab: Lab, cap: int) -> None:
    """Attempts, retries included, never outnumber the slots, and use all of them."""
    gauge = Gauge()

    async def agent(trial: Trial) -> Outcome:
        await gauge.stay()
        if trial.attempt == 1 and len(failed) < 3:
            failed.append(trial.task.id)
            raise SessionOpenError("once more")
        return RIGHT

    failed: list[str] = []
    await lab.run(agent, benchmark_params={"tasks": 8}, k=2, task_concurrency=cap, resumable=False)
    assert gauge.peak == cap


async def test_provider_limit_holds_for_verifier_sessions_too(lab: Lab) -> None:
    """One slot suffices: the agent's session closes before the verifier's opens."""
    result = await lab.run(
        needs_session=True,
        provider_limits={"fake-environment": 1},
        env_open_qps={"fake-environment": 0},
        benchmark_params={"tasks": 4},
    )
    assert result.status is RunStatus.COMPLETED
    assert lab.environments[0].statistics().most_live == 1


async def test_waiting_for_a_slot_is_not_billed_to_the_agent(lab: Lab) -> None:
    """Queue time is recorded apart and never counts against the agent's deadline."""

    async def agent(trial: Trial) -> Outcome:
        await anyio.sleep(0.12)
        return RIGHT

    result = await lab.run(
        agent,
        needs_session=True,
        provider_limits={"fake-environment": 1},
        env_open_qps={"fake-environment": 0},
        benchmark_params={"tasks": 3},
        task_timeout_seconds=0.2,
        clock=_RealTime(),
    )
    assert {record.outcome for record in trials(result)} == {OutcomeClass.COMPLETED}
    assert max(record.timings.queued for record in trials(result)) > 0.1


async def test_commands_reach_the_session(lab: Lab) -> None:
    """An agent works in the session, and its steps are kept."""

    async def on_exec(session: FakeSession, command: str) -> ExecResult:
        return ExecResult(exit_code=0, stdout_bytes=command.upper().encode())

    async def agent(trial: Trial) -> Outcome:
        done = await trial.session.exec("ok")
        trial.trajectory.add(CommandStep(command="ok", exit_code=0, stdout=done.stdout))
        return Outcome(answer=done.stdout.lower(), artifacts={"log": b"\xff\x00"})

    result = await lab.run(
        agent, needs_session=True, environment=FakeParams(on_exec=on_exec), benchmark_params={"tasks": 1}
    )
    assert trials(result)[0].score == 1.0
    assert result.paths is not None
    [artifact] = [path for path in Path(result.paths.artifacts).rglob("*") if path.is_file()]  # noqa: ASYNC240
    assert artifact.read_bytes() == b"\xff\x00"


async def test_agent_sees_nothing_that_is_hidden(lab: Lab) -> None:
    """An ordinary harness gets id, prompt and files: no reference, no hidden field, no verifier."""
    seen: list[str] = []

    async def agent(trial: Trial) -> Outcome:
        seen.append(repr(trial.task) + repr(trial.reference))
        return RIGHT

    await lab.run(agent, benchmark_params={"tasks": 1}, resumable=False)
    assert "'ok'" not in seen[0]
    assert "reference" not in seen[0]


async def test_session_is_refused_to_harnesses_that_did_not_ask(lab: Lab) -> None:
    """Touching what was not asked for is a bug of the harness, recorded as one."""

    async def agent(trial: Trial) -> Outcome:
        await trial.session.exec("true")
        return RIGHT

    result = await lab.run(agent, benchmark_params={"tasks": 1})
    failure = trials(result)[0].failure
    assert failure is not None
    assert "needs_session" in failure.message


async def test_kept_environment_is_passed_on(lab: Lab) -> None:
    """``keep_environment`` reaches every session that is opened."""
    await lab.run(answer_right, needs_session=True, keep_environment=True, resumable=False)
    assert all(plan.keep for plan in lab.environments[0].plans)


class _RealTime:
    """Real time, for tests that let it pass."""

    def now(self) -> float:
        return anyio.current_time()

    def wall(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("42", "must be an Outcome"),
        (Outcome(answer=3), "answer is 3; it must be str or None"),  # type: ignore[arg-type]
        (Outcome(stop_reason=None), "stop_reason is None"),  # type: ignore[arg-type]
        (Outcome(artifacts=["a"]), "artifacts is ['a']"),  # type: ignore[arg-type]
        (Outcome(artifacts={"a": "text"}), "artifact 'a'; it must be text to bytes"),  # type: ignore[dict-item]
    ],
    ids=["no outcome", "answer", "stop reason", "artifacts", "artifact"],
)
async def test_wrong_return_value_is_a_recorded_bug(lab: Lab, returned: Outcome, message: str) -> None:
    """A harness that returns nonsense costs its own attempts and breaks no record."""

    async def agent(trial: Trial) -> Outcome:
        return returned if trial.task.id == "t0000" else RIGHT

    result = await lab.run(agent, benchmark_params={"tasks": 2})
    [record] = [record for record in trials(result) if record.task_id == "t0000"]
    assert record.outcome is OutcomeClass.INTERNAL_ERROR
    assert record.failure is not None
    assert message in record.failure.message


async def test_steps_are_told_as_they_come(lab: Lab) -> None:
    """A display can show how far a trial is; the file does not have them."""
    told: list[int] = []

    def note(event: ProgressEvent) -> None:
        if isinstance(event, TrialProgressed):
            told.append(event.steps)

    async def agent(trial: Trial) -> Outcome:
        for text in ("first", "second"):
            trial.trajectory.add(NoteStep(text=text))
        return RIGHT

    result = await lab.run(agent, on_progress=note, benchmark_params={"tasks": 1}, resumable=False)
    assert told == [1, 2]
    assert result.paths is not None
    assert "trial_progressed" not in await anyio.Path(result.paths.progress).read_text()


async def test_phase_events_carry_the_time_of_the_phase(lab: Lab) -> None:
    """An event says when its phase began, not when the trial did."""
    clock = ManualClock(jumping=True)
    phases: dict[str, str] = {}

    def note(event: ProgressEvent) -> None:
        if isinstance(event, PhaseChanged):
            phases[event.phase] = event.at

    async def agent(trial: Trial) -> Outcome:
        clock.advance(5)
        return RIGHT

    await lab.run(agent, clock=clock, on_progress=note, benchmark_params={"tasks": 1}, resumable=False)
    assert phases == {"agent": utc_text(clock.wall() - 5), "verify": utc_text(clock.wall())}
