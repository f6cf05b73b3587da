"""Examine the machine: what evaluations need, whether it is there, and what to do if it is not."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio

from .._version import __version__
from ..environments.docker.daemon import FAILURES, Daemon
from ..errors import CompassError, ConfigError
from ..spec.config_files import config_paths, read_config
from .extras import declared_extras, install_command, missing_requirements

State = Literal["ok", "missing", "problem"]

_GIB = 2**30
_LOW_DISK_BYTES = 5 * _GIB
_LOW_FILES = 1024
_DAEMON_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    One thing about the machine.

    Args:
        state: ``missing`` is not there and not needed by everybody; ``problem`` would spoil a run.
        advice: What to do; empty if nothing.
    """

    what: str
    state: State
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    """Look at everything; blocks, for a few seconds at most."""
    return [
        _python(),
        *_extras(),
        _sandbox(),
        anyio.run(_docker),
        *_disks(),
        _open_files(),
        _clock(),
        *_credentials(),
        _configuration(),
    ]


def _python() -> Finding:
    found = f"{platform.python_version()} ({sys.executable}), agentcompass {__version__}"
    return Finding(what="python", state="ok", found=found)


def _extras() -> Iterator[Finding]:
    for extra in declared_extras():
        missing = missing_requirements(extra)
        if not missing:
            yield Finding(what=f"extra {extra}", state="ok", found="installed")
            continue
        try:
            advice = shlex.join(install_command(missing))
        except ConfigError as error:
            advice = str(error)
        yield Finding(
            what=f"extra {extra}", state="missing", found=f"lacks {', '.join(missing)}", advice=advice
        )


def _sandbox() -> Finding:
    from ..environments.bubblewrap import UnusableError, find_bubblewrap

    try:
        program = find_bubblewrap().program
    except UnusableError as error:
        return Finding(
            what="bubblewrap", state="missing", found=str(error), advice="needed to confine local sessions"
        )
    return Finding(what="bubblewrap", state="ok", found=str(program))


async def _docker() -> Finding:
    try:
        with anyio.fail_after(_DAEMON_SECONDS):
            daemon = await Daemon.connect("")
            try:
                info = await daemon.docker.system.info()
            finally:
                await daemon.aclose()
    except (CompassError, TimeoutError, *FAILURES) as error:
        return Finding(
            what="docker",
            state="missing",
            found=str(error) or "the daemon does not answer",
            advice="start the daemon, or set DOCKER_HOST; only the docker environment needs it",
        )
    found = (
        f"{info['ServerVersion']}, {info['NCPU']} CPUs, {info['MemTotal'] / _GIB:.0f} GiB, {info['Driver']}"
    )
    return Finding(what="docker", state="ok", found=found)


def _disks() -> Iterator[Finding]:
    for what, folder in (("disk of results", Path.cwd()), ("disk of sessions", Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(folder).free
        low = free < _LOW_DISK_BYTES
        yield Finding(
            what=what,
            state="problem" if low else "ok",
            found=f"{free / _GIB:.1f} GiB free in {folder}",
            advice="make room: results, images and sessions need it" if low else "",
        )
    if not os.access(Path.cwd(), os.W_OK):
        yield Finding(
            what="results", state="problem", found=f"cannot write to {Path.cwd()}", advice="set results_dir"
        )


def _open_files() -> Finding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = soft < _LOW_FILES
    advice = f"ulimit -n {min(hard, 65536) if hard > 0 else 65536}" if low else ""
    return Finding(what="open files", state="problem" if low else "ok", found=f"limit {soft}", advice=advice)


def _clock() -> Finding:
    """A wrong clock breaks TLS and makes run ids lie; durations do not depend on it."""
    built = Path(__file__).stat().st_mtime
    now = time.time()
    text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < built - 86400:
        return Finding(
            what="clock", state="problem", found=f"{text}, before this package was installed", advice="set it"
        )
    return Finding(what="clock", state="ok", found=text)


def _credentials() -> Iterator[Finding]:
    for name, meaning in (
        ("MODEL_BASE_URL", "where the model is"),
        ("MODEL_NAME", "which model"),
        ("MODEL_API_KEY", "its key"),
    ):
        there = bool(os.environ.get(name))
        yield Finding(
            what=name,
            state="ok" if there else "missing",
            found="set" if there else "not set",
            advice=""
            if there
            else f"{meaning}, for harnesses that use a model; options and files can tell as well",
        )


def _configuration() -> Finding:
    paths, _ = config_paths([])
    names = ", ".join(map(str, paths)) or "none"
    try:
        read_config()
    except ConfigError as error:
        return Finding(what="configuration", state="problem", found=names, advice=str(error))
    return Finding(what="configuration", state="ok", found=names)
