"""Run a part of a script in a process of its own and report what it cost."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process took; ``cpu_seconds`` includes its children."""

    cpu_seconds: float
    wall_seconds: float
    peak_mb: float
    value: float = 0.0


Part = Callable[[list[str]], float | None]


def main(parts: dict[str, Part], report: Callable[[bool], None]) -> None:
    """Run one part if the command line names it, else the whole report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--part", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        name, *rest = arguments.part
        print(json.dumps(asdict(_measured(parts[name], rest))))
    else:
        report(arguments.quick)


def _measured(part: Part, arguments: list[str]) -> Cost:
    started = time.perf_counter()
    value = part(arguments)
    wall = time.perf_counter() - started
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in used)
    return Cost(cpu, wall, used[0].ru_maxrss / 1024, value or 0.0)


def cost_of(script: str, part: str, *arguments: object, repeat: int = 1) -> Cost:
    """Run a part in fresh processes, in a fresh folder each, and return the cheapest."""
    costs = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(Path(script).resolve()), "--part", part, *map(str, arguments)]
            done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
            costs.append(Cost(**json.loads(done.stdout.splitlines()[-1])))
    return min(costs, key=lambda cost: cost.cpu_seconds)


def show(what: str, value: str, *, target: str = "", met: bool | None = None) -> None:
    """Print one line of a report."""
    mark = "" if met is None else ("ok" if met else "MISSED")
    print(f"  {what:<44} {value:>26}   {target:<28} {mark}", flush=True)
