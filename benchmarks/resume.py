"""Resuming a run that is finished already: how long until the engine says so."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from engine_overhead import engine
from measure import cost_of, main, show

from agentcompass import run_evaluation
from agentcompass.engine.registry import harness
from agentcompass.harnesses.fake import InstantHarness
from agentcompass.store.journal import read_journal


def make(arguments: list[str]) -> None:
    """Make a finished run in the folder that is named second."""
    import os

    os.chdir(arguments[1])
    engine(arguments)


def resume(arguments: list[str]) -> None:
    """Resume it."""
    harness("instant")(InstantHarness)
    [run_json] = Path(arguments[1]).glob("results/*/*/run.json")
    result = run_evaluation(
        benchmark="fake",
        benchmark_params={"tasks": int(arguments[0])},
        harness="instant",
        progress="none",
        run_id=run_json.parent.name,
        results_dir=Path(arguments[1], "results"),
    )
    assert result.execution.executed_trials == 0


def read(arguments: list[str]) -> None:
    """Read its journal and nothing else."""
    [journal] = Path(arguments[1]).glob("results/*/*/attempts.jsonl")
    assert sum(1 for _ in read_journal(journal)) > int(arguments[0])


def report(quick: bool) -> None:
    """Print the time of a resume against that of reading the journal."""
    tasks = 10_000 if quick else 100_000
    print(f"resume of a finished run of {tasks:,} tasks")
    with tempfile.TemporaryDirectory() as folder:
        cost_of(__file__, "make", tasks, folder)
        began = time.perf_counter()
        ours = cost_of(__file__, "resume", tasks, folder, repeat=2)
        whole = (time.perf_counter() - began) / 2
        theirs = cost_of(__file__, "read", tasks, folder, repeat=2)
    show(
        "wall, interpreter and imports included",
        f"{whole:.2f} s = {ours.wall_seconds / theirs.wall_seconds:.1f} x a bare read",
        target="at most 4 s at 100,000",
        met=whole <= 4,
    )


if __name__ == "__main__":
    main({"make": make, "resume": resume, "read": read}, report)
