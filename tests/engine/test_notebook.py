"""A real Jupyter kernel: components in cells, a run in a cell, an interrupt, a resume."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

COMPONENTS = """
import os
import anyio
from pydantic import BaseModel
from agentcompass import (
    Outcome, Task, async_run_evaluation, benchmark, harness, run_evaluation,
)

class CapitalsParams(BaseModel):
    many: int = 3

@benchmark("capitals")
class Capitals:
    def __init__(self, params: CapitalsParams):
        self.many = params.many
    def load(self, data_dir):
        for n in range(self.many):
            yield Task(id=f"c{n}", prompt="The capital of France?", reference="Paris")
    def verifier(self):
        return self
    def grade(self, task, outcome):
        return outcome.answer == task.reference

@harness("guess")
class Guess:
    async def run(self, trial):
        if os.path.exists("hang") and trial.task.id != "c0":
            open(f"hanging-{trial.task.id}", "w").close()
            await anyio.sleep_forever()
        return Outcome(answer="Paris")

options = dict(benchmark="capitals", harness="guess", results_dir="results", run_id="nb")
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[NotebookClient]:
    client = NotebookClient(
        nbformat.v4.new_notebook(),  # type: ignore[no-untyped-call]
        timeout=60,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    with client.setup_kernel():
        yield client


def execute(client: NotebookClient, code: str) -> str:
    """Run a cell and return what it printed."""
    cell = nbformat.v4.new_code_cell(code)  # type: ignore[no-untyped-call]
    client.nb.cells = [cell]
    client.execute_cell(cell, 0)
    texts: list[Any] = [output.get("text", "") for output in cell.outputs]
    return "".join(texts)


def test_run_in_a_cell(kernel: NotebookClient) -> None:
    """Components defined in cells run, synchronously in a running loop and awaited."""
    execute(kernel, COMPONENTS)
    printed = execute(kernel, "print(run_evaluation(**options).metrics.score.value)")
    assert "1.0" in printed
    awaited = "r = await async_run_evaluation(**{**options, 'run_id': 'two'}, k=2)\nprint(r.status)"
    assert "completed" in execute(kernel, awaited)


def test_interrupt_and_resume(kernel: NotebookClient, tmp_path: Path) -> None:
    """Interrupting a cell ends it with KeyboardInterrupt and full records; the next one resumes the run."""
    execute(kernel, COMPONENTS)
    (tmp_path / "hang").touch()
    interrupt_when_hanging = (
        "import threading, signal, time\n"
        "def interrupt():\n"
        "    from pathlib import Path\n"
        "    def finished(): return any(b'c0' in p.read_bytes() for p in Path().rglob('details/*'))\n"
        "    while len(list(Path().glob('hanging-*'))) < 2 or not finished(): time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt).start()\n"
        "run_evaluation(**options)"
    )
    began = time.monotonic()
    with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
        execute(kernel, interrupt_when_hanging)
    assert time.monotonic() - began < 20
    [metrics] = (tmp_path / "results").rglob("metrics.json")
    assert '"cancelled": 2' in metrics.read_text()
    (tmp_path / "hang").unlink()
    again = "r = run_evaluation(**options)\nprint(r.status, r.execution.kept_attempts)"
    assert "completed 1" in execute(kernel, again)
