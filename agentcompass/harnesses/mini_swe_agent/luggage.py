"""What the agent's loop takes along into a session: its packages, and if need be an interpreter."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from ...errors import SessionError

HOST = [sys.implementation.name, *sys.version_info[:2], platform.machine()]
"""What a Python must be to load the packages that are installed here."""

_DISTRIBUTIONS = (
    "mini-swe-agent",
    "annotated-types",
    "jinja2",
    "markdown-it-py",
    "markupsafe",
    "mdurl",
    "platformdirs",
    "pydantic",
    "pydantic-core",
    "pygments",
    "python-dotenv",
    "rich",
    "typing-extensions",
    "typing-inspection",
)
_LEFT_OUT = (
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "site-packages",
    "dist-packages",
    "lib2to3",
)
_OF_THE_SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv))\.so")


@dataclass(frozen=True, slots=True)
class Luggage:
    """A folder to upload."""

    folder: Path
    has_interpreter: bool

    def at(self, place: str, python: str) -> tuple[list[str], dict[str, str]]:
        """Return the command and the variables with which it is used once it lies at a place."""
        env = {"PYTHONPATH": f"{place}/packages"}
        if not self.has_interpreter:
            return [python], env
        env |= {"PYTHONHOME": f"{place}/python", "LD_LIBRARY_PATH": f"{place}/python/lib"}
        return [f"{place}/python/bin/python"], env


def packages_luggage() -> Luggage:
    """Return the packages alone; blocks."""
    return Luggage(_cached("packages", _pack_packages), has_interpreter=False)


def interpreter_luggage() -> Luggage:
    """Return the packages with the interpreter of this machine; blocks."""

    def pack(folder: Path) -> None:
        _pack_packages(folder)
        _pack_interpreter(folder)

    return Luggage(_cached("interpreter", pack), has_interpreter=True)


def _cached(name: str, pack: Callable[[Path], None]) -> Path:
    """Pack once for all runs of this user with these versions."""
    versions = "-".join([_version(), *map(str, HOST), platform.python_version()])
    base = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentcompass" / "mini-swe-agent"
    )
    target = base / f"{versions}-{name}"
    if target.is_dir():
        return target
    try:
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=base) as folder:
            packed = Path(folder) / "packed"
            packed.mkdir()
            pack(packed)
            try:
                packed.rename(target)
            except OSError:
                if not target.is_dir():  # another process may have been faster
                    raise
    except OSError as error:
        raise SessionError(
            f"what the agent needs in the session cannot be packed in {str(base)!r}: {error}", retryable=False
        ) from error
    return target


def _version() -> str:
    return distribution("mini-swe-agent").version


def _pack_packages(folder: Path) -> None:
    target = folder / "packages"
    for name in _DISTRIBUTIONS:
        try:
            files = distribution(name).files or []
        except PackageNotFoundError:
            continue
        for file in files:
            if ".." in file.parts or "__pycache__" in file.parts:
                continue
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(file.locate()), target / file)


def _pack_interpreter(folder: Path) -> None:
    home = folder / "python"
    program = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    (home / "bin").mkdir(parents=True)
    shutil.copy2(program, home / "bin" / "python")
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(
        library,
        home / "lib" / library.name,
        ignore=shutil.ignore_patterns(*_LEFT_OUT, "__pycache__", "config-*", "*.a"),
    )
    command = [shutil.which("ldd") or "ldd", str(program)]
    libraries = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for line in libraries.splitlines():
        name, _, found = line.strip().partition(" => ")
        path = Path(found.split(" (")[0])
        if found and path.is_file() and not _OF_THE_SYSTEM.match(name):
            shutil.copy2(path, home / "lib" / name)
