"""CPU per task of many small requests against one large one, and against a bare loop with as many folders."""

from __future__ import annotations

import os
from pathlib import Path

from measure import cost_of, main, show

from agentcompass import OrchestrationSpec, RunRequestSpec, launch
from agentcompass.engine.registry import harness
from agentcompass.harnesses.fake import InstantHarness

TASKS_EACH = 10
_FILES_OF_A_RUN = ("run.json", "attempts.jsonl", "metrics.json", "summary.md")


def engine(arguments: list[str]) -> None:
    """Run R requests of N tasks each."""
    requests, tasks = map(int, arguments)
    harness("instant")(InstantHarness)
    spec = OrchestrationSpec(
        defaults={"benchmark": {"id": "fake", "tasks": tasks}, "harness": "instant"},
        requests=[_request(number) for number in range(requests)],
        runtime={"progress": "none"},  # type: ignore[arg-type]  # as a file would say it
    )
    assert launch(spec).status == "completed"


def _request(number: int) -> RunRequestSpec:
    return {"name": f"r{number}"}  # type: ignore[return-value]  # as a file would say it


def bare(arguments: list[str]) -> None:
    """Make a folder for each of R requests with N detail files, and the files of a run, each synced."""
    requests, tasks = map(int, arguments)
    for number in range(requests):
        folder = Path(f"r{number}/run")
        (folder / "details").mkdir(parents=True)
        _sync(folder, os.O_RDONLY)
        for task in range(tasks):
            _write(folder / "details" / f"t{task}.json", synced=False)
        for name in _FILES_OF_A_RUN:
            _write(folder / name, synced=True)


def _write(path: Path, *, synced: bool) -> None:
    partial = path.with_name(".partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"x" * 1000)
    if synced:
        os.fsync(descriptor)
    os.close(descriptor)
    partial.rename(path)
    if synced:
        _sync(path.parent, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    os.fsync(descriptor)
    os.close(descriptor)


def report(quick: bool) -> None:
    """Print CPU per task of both shapes."""
    requests = 100 if quick else 1000
    tasks = requests * TASKS_EACH
    print(f"{requests:,} requests of {TASKS_EACH} tasks (CPU of start-up taken off)")
    start_engine = cost_of(__file__, "engine", 1, 1, repeat=2).cpu_seconds
    start_bare = cost_of(__file__, "bare", 1, 1, repeat=2).cpu_seconds
    one = (cost_of(__file__, "engine", 1, tasks, repeat=2).cpu_seconds - start_engine) / tasks * 1e3
    many = cost_of(__file__, "engine", requests, TASKS_EACH, repeat=2)
    ours = (many.cpu_seconds - start_engine) / tasks * 1e3
    floor = (cost_of(__file__, "bare", requests, TASKS_EACH, repeat=2).cpu_seconds - start_bare) / tasks * 1e3
    show(
        "many small ones",
        f"{ours:.2f} ms/task = {ours / one:.1f} x one large one",
        target="as one large one",
        met=ours <= one * 1.1,
    )
    show("a bare loop with as many folders", f"{floor:.2f} ms/task; ours is {ours / floor:.1f} x that")
    show("peak memory", f"{many.peak_mb:.0f} MB")


if __name__ == "__main__":
    main({"engine": engine, "bare": bare}, report)
