"""Who counts as dead: only a process of this machine that certainly has ended."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from agentcompass.environments.docker.owners import Owner, parse_owner, this_process


def test_label_round_trips() -> None:
    """Also with a host name that holds the separator."""
    owner = replace(this_process(), host="odd/host")
    assert parse_owner(str(owner)) == owner


@pytest.mark.parametrize("text", ["", "nonsense", "a/b/c/d", "host/12/x"])
def test_what_is_no_owner_is_told_apart(text: str) -> None:
    """A label that we did not write is nobody's."""
    assert parse_owner(text) is None


def test_living_process_is_not_dead() -> None:
    """Neither this one."""
    assert not this_process().is_dead


def test_ended_process_is_dead() -> None:
    """Its id is free, or belongs to a process that started at another time."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    mine = this_process()
    assert replace(mine, pid=process.pid).is_dead
    assert replace(mine, started="1").is_dead


@pytest.mark.skipif(sys.platform != "linux", reason="boots and namespaces are told apart on Linux only")
def test_other_machines_boots_and_namespaces() -> None:
    """After a restart of the machine its processes are dead; of what cannot be seen nothing is claimed."""
    mine = this_process()
    boot, namespace = mine.space.split(":")
    assert Owner(mine.host, mine.pid, mine.started, f"another-boot:{namespace}").is_dead
    assert not Owner(mine.host, 1, "1", f"{boot}:1").is_dead
    assert not Owner("elsewhere", 1, "1", mine.space).is_dead
