"""
Whose the containers and networks are: labels that name the run and the process, and who is dead.

Nothing without our labels is ever looked at, and only what the daemon says decides what is removed.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

RUN, OWNER, TRIAL, KEPT = (f"agentcompass.{name}" for name in ("run", "owner", "trial", "keep"))


@dataclass(frozen=True, slots=True)
class Owner:
    """
    A process on some machine.

    Args:
        host: The machine's name.
        pid: Its process id.
        started: When it started, in the system's own terms; tells it from a later process of that id.
        space: Which boot of the machine and which process id namespace ``pid`` belongs to.
    """

    host: str
    pid: int
    started: str
    space: str

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}/{self.started}/{self.space}"

    @property
    def is_dead(self) -> bool:
        """Whether the process has certainly ended; False where that cannot be known from here."""
        here = this_process()
        if self.host != here.host:
            return False
        mine, its = here.space.split(":"), self.space.split(":")
        if mine[0] != its[0]:
            return True  # the machine has been started anew since
        return mine == its and _start_time(self.pid) != self.started


def parse_owner(text: str) -> Owner | None:
    """Read an owner from its label; None when it is none of ours."""
    match text.rsplit("/", 3):
        case [host, pid, started, space] if pid.isdigit():
            return Owner(host, int(pid), started, space)
    return None


def this_process() -> Owner:
    """Return the owner of what this process creates; blocks for a moment."""
    return Owner(platform.node(), os.getpid(), _start_time(os.getpid()), _space())


def labels(owner: Owner, *, run_id: str, trial: str, keep: bool) -> Mapping[str, str]:
    """Return the labels of something that ``owner`` creates."""
    kept = {KEPT: "true"} if keep else {}
    return {RUN: run_id, OWNER: str(owner), TRIAL: trial, **kept}


def _start_time(pid: int) -> str:
    """Return when a process started, empty if there is none."""
    if sys.platform != "linux":
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    return content.rpartition(b")")[2].split()[19].decode()  # field 22: see proc(5)


@cache
def _space() -> str:
    if sys.platform != "linux":
        return ":"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116  # a namespace, not a path
