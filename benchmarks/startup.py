"""How long one waits before anything happens."""

from __future__ import annotations

import subprocess
import sys
import time

from measure import main, show


def best_of(command: list[str], *, times: int = 7) -> float:
    """Return the shortest wall time of a command, in seconds."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        taken.append(time.perf_counter() - began)
    return min(taken)


def report(quick: bool) -> None:
    """Print start-up times against a bare interpreter."""
    print("start-up (wall, best of 7)")
    nothing = best_of([sys.executable, "-c", "pass"])
    for what, command, limit in (
        ("import agentcompass", [sys.executable, "-c", "import agentcompass"], 0.25),
        (
            "import agentcompass and its functions",
            [sys.executable, "-c", "from agentcompass import run_evaluation"],
            None,
        ),
        ("agentcompass --help", [sys.executable, "-m", "agentcompass", "--help"], 0.35),
        ("agentcompass run --help", [sys.executable, "-m", "agentcompass", "run", "--help"], None),
    ):
        seconds = best_of(command)
        show(
            what,
            f"{seconds:.3f} s = {seconds / nothing:.1f} x python",
            target=f"at most {limit} s" if limit else "",
            met=seconds <= limit if limit else None,
        )


if __name__ == "__main__":
    main({}, report)
