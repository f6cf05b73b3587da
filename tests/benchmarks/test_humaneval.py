"""HumanEval: data, verdicts on honest answers, and who is to blame when no verdict comes."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentcompass.benchmarks.humaneval import HumanEval, HumanEvalParams
from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.errors import ConfigError, VerifierError
from agentcompass.protocols import Outcome, SessionPlan, Task, Verdict

HERE = Path()
PARAMS = HumanEvalParams(python=sys.executable)
TASKS = {task.id: task for task in HumanEval(PARAMS).load(HERE)}
SAMPLE = [f"HumanEval/{number}" for number in (0, 8, 32, 33, 38, 50, 64, 107, 151, 163)]


async def judge(task: Task, answer: str | None, **params: Any) -> Verdict:
    verifier = HumanEval(PARAMS.model_copy(update=params)).verifier()
    plan = SessionPlan(run_id="test", label=task.id)
    async with LocalEnvironment(LocalParams()).open(plan) as session:
        return await verifier.verify(task, Outcome(answer=answer), session)


def row(**fields: object) -> dict[str, object]:
    plain: dict[str, object] = {
        "task_id": "x/1",
        "prompt": 'def f(x):\n    """Double it."""\n',
        "entry_point": "f",
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n",
    }
    return plain | fields


def simple_task(test: str) -> Task:
    hidden = {"prompt": row()["prompt"], "entry_point": "f", "test": test}
    return Task(id="x/1", prompt="", hidden=hidden)


def load_rows(directory: Path, *rows: dict[str, object]) -> list[Task]:
    path = directory / "data.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in rows), "utf-8")
    return list(HumanEval(HumanEvalParams(data_path=path)).load(directory))


def test_packaged_data_has_all_tasks_with_their_ids() -> None:
    """The 164 tasks are there, in order, under their published ids."""
    assert list(TASKS) == [f"HumanEval/{number}" for number in range(164)]


@pytest.mark.parametrize("task_id", SAMPLE)
def test_prompt_shows_the_function_and_hides_the_rest(task_id: str) -> None:
    """The agent sees the original prompt verbatim, neither the tests nor the solution."""
    task = TASKS[task_id]
    solution = (task.reference or "").removeprefix(task.hidden["prompt"])
    assert task.hidden["prompt"] in task.prompt
    assert solution.strip() not in task.prompt
    assert task.hidden["test"].strip() not in task.prompt


@pytest.mark.anyio
@pytest.mark.parametrize("task_id", SAMPLE)
async def test_reference_solution_passes(task_id: str) -> None:
    """What the oracle submits scores 1."""
    assert (await judge(TASKS[task_id], TASKS[task_id].reference)).success


@pytest.mark.anyio
@pytest.mark.parametrize("task_id", SAMPLE)
async def test_unfinished_function_fails(task_id: str) -> None:
    """The prompt alone is no solution."""
    assert (await judge(TASKS[task_id], TASKS[task_id].hidden["prompt"])).success is False


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.timeout(120)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_every_reference_solution_passes() -> None:
    """All 164 controls score 1."""
    failed = [task.id for task in TASKS.values() if not (await judge(task, task.reference)).success]
    assert failed == []


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [None, "", "  \n", "```python\n```", "<think>still at it", "I can't."])
async def test_answer_without_code_fails(answer: str | None) -> None:
    """An empty, truncated or wordy answer is a failed attempt, not an error."""
    verdict = await judge(TASKS["HumanEval/0"], answer)
    assert verdict.success is False
    assert verdict.explanation


BODY = "    rest = number % 1.0\n    return rest\n"
FORMS = {
    "whole function in a fence": f"Sure!\n```python\ndef truncate_number(number):\n{BODY}```\nDone.",
    "body in a fence": f"```python\n{BODY}```",
    "body without indentation": "```\nrest = number % 1.0\nreturn rest\n```",
    "body that lost its first indentation": BODY.strip(),
    "prose around bare code": f"Here:\n\ndef truncate_number(number):\n{BODY}\nIt works.",
    "windows line ends": f"```python\ndef truncate_number(number):\n{BODY}```\n".replace("\n", "\r\n"),
    "future import": "from __future__ import annotations\ndef truncate_number(number: X):\n" + BODY,
    "lambda": "```py\ntruncate_number = lambda number: number % 1.0\n```",
    "fence inside a list": "- So:\n  ```\n  def truncate_number(number):\n      return number % 1.0\n  ```",
    "reasoning first": f"<think>```\nno\n</think>\n~~~python\ndef truncate_number(number):\n{BODY}~~~",
    "main guard": f"def truncate_number(number):\n{BODY}\nif __name__ == '__main__':\n    raise SystemExit\n",
    "numpy-like result": "class Scalar:\n    def __init__(self, value): self.value = value\n"
    "    def tolist(self): return self.value\n\n"
    "def truncate_number(number):\n    return Scalar(number % 1.0)",
    "prints": f"def truncate_number(number):\n    print('noise' * 100_000, flush=True)\n{BODY}",
}


@pytest.mark.anyio
@pytest.mark.parametrize("form", FORMS)
async def test_right_answer_passes_in_any_usual_form(form: str) -> None:
    """How an answer wraps its code doesn't matter."""
    verdict = await judge(TASKS["HumanEval/2"], FORMS[form])
    assert verdict.success, verdict.explanation


RESULTS = [
    ("float('nan')", "x != x"),
    ("float('-inf')", "x == float('-inf')"),
    ("2 ** 5000", "x == 2 ** 5000"),
    (
        "(1, [2.0, 'é\\ud800'], {3: {4}}, None, b'\\xff')",
        "x == (1, [2.0, 'é\\ud800'], {3: {4}}, None, b'\\xff')",
    ),
    ("True", "x is True"),
    ("1j", "x == 1j"),
    ("range(3)", "list(x) == [0, 1, 2] and x == range(3)"),
    ("(i for i in 'ab')", "next(x) == 'a' and list(x) == ['b'] and x != ['b']"),
    ("{1: 2}.keys()", "list(x) == [1] and len(x) == 1"),
    ("frozenset('a')", "x == {'a'}"),
    ("__import__('collections').Counter('aab')", "x == {'a': 2, 'b': 1}"),
    ("__import__('collections').namedtuple('P', 'a b')(1, 2)", "x == (1, 2)"),
    ("__import__('collections').deque([1])", "list(x) == [1] and x != [1]"),
    ("__import__('fractions').Fraction(1, 2)", "x == 0.5"),
    ("__import__('decimal').Decimal('0.5')", "x == 0.5"),
    ("object()", "x != object() and x is not None"),
]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("result", "test"), RESULTS)
async def test_result_keeps_its_value_across_the_pipe(result: str, test: str) -> None:
    """Tests meet the values that the function returned."""
    check = f"def check(candidate):\n    x = candidate(0)\n    assert {test}\n"
    verdict = await judge(simple_task(check), f"def f(x):\n    return {result}\n")
    assert verdict.success, verdict.explanation


RAISING = {
    "ValueError": "raise ValueError(1)",
    "LookupError": "raise KeyError(1)",
    "OverflowError": "class Own(OverflowError): pass\n    raise Own",
    "UnicodeError": "return b'\\xff'.decode()",
    "RecursionError": "return f(x)",
}


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("expected", RAISING)
async def test_exception_of_the_function_reaches_the_test(expected: str) -> None:
    """A test may expect a builtin exception; a subclass arrives as its builtin."""
    check = f"def check(candidate):\n    try: candidate(0)\n    except {expected}: return\n    assert 0\n"
    verdict = await judge(simple_task(check), f"def f(x):\n    {RAISING[expected]}\n")
    assert verdict.success, verdict.explanation


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_swallowed_protocol_failure_still_fails() -> None:
    """A bare ``except`` in a test cannot turn a dead program into a success."""
    check = "def check(candidate):\n    try:\n        candidate(0)\n    except:\n        pass\n"
    assert (await judge(simple_task(check), "import os\ndef f(x): os._exit(0)")).success is False


@pytest.mark.anyio
async def test_missing_interpreter_is_an_error_of_the_machine() -> None:
    """Without an interpreter there is no verdict, and the message says what to set."""
    with pytest.raises(VerifierError, match=r"no-such-python.*127"):
        await judge(TASKS["HumanEval/0"], "return 1", python="no-such-python")


@pytest.mark.anyio
@pytest.mark.parametrize("python", ["/bin/cat", "/bin/false"])
async def test_program_that_is_no_python_is_an_error_of_the_machine(python: str) -> None:
    """An interpreter that never gets to the answer says nothing about it."""
    with pytest.raises(VerifierError):
        await judge(TASKS["HumanEval/0"], "return 1", python=python)


@pytest.mark.anyio
@pytest.mark.parametrize("test", ["def check(candidate)", "import no_such_module", "def verify(x): pass"])
async def test_broken_task_is_an_error(test: str) -> None:
    """A test that cannot be loaded is no fault of the answer."""
    with pytest.raises(VerifierError, match="task cannot be run"):
        await judge(simple_task(test), "return 2 * x")


def test_file_with_the_published_fields_is_read_zipped_or_not(tmp_path: Path) -> None:
    """A gzipped file, a BOM, blank lines and further fields are fine."""
    path = tmp_path / "data.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf\n" + json.dumps(row(note=1)).encode() + b"\r\n\n"))
    tasks = list(HumanEval(HumanEvalParams(data_path=path)).load(tmp_path))
    assert [task.id for task in tasks] == ["x/1"]


@pytest.mark.parametrize("fields", [{"test": 3}, {"prompt": None}])
def test_wrong_field_is_reported_with_file_line_and_fields(fields: dict[str, object], tmp_path: Path) -> None:
    """The message leads to the line and says what is needed."""
    with pytest.raises(ConfigError, match=r"data\.jsonl:2: .*task_id, prompt, entry_point") as caught:
        load_rows(tmp_path, row(), row(**fields))
    assert next(iter(fields)) in str(caught.value)


def test_missing_and_damaged_files_are_config_errors(tmp_path: Path) -> None:
    """Neither is worth a traceback."""
    damaged = tmp_path / "half.gz"
    damaged.write_bytes(gzip.compress(b"x" * 1000)[:20])
    for path in (damaged, tmp_path / "absent.jsonl"):
        with pytest.raises(ConfigError, match=path.name):
            HumanEval(HumanEvalParams(data_path=path)).load(tmp_path)
