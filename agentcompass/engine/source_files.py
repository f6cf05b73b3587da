"""Python code that was named by path: load it once, tell its content apart, and let workers have it."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from ..errors import ConfigError


def load_source(path: Path, name: str) -> ModuleType:
    """
    Import a file, or the ``__init__.py`` of a package, under a name; once per name.

    Raises:
        ConfigError: It is not a Python file. What its code raises is passed on.
    """
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _pickle_by_value(module)
    return module


def _pickle_by_value(module: ModuleType) -> None:
    """Worker processes cannot import a module that came from a file, so its classes travel with it."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)


def source_hash(cls: type) -> str:
    """Return a hash over the file that defines a class, or over its whole package; empty if there is none."""
    try:
        file = inspect.getsourcefile(cls)
    except (OSError, TypeError):
        return ""  # typed into a console
    if file is None or not Path(file).is_file():
        return ""
    path = Path(file)
    return hash_of(package_files(path.parent) if path.name == "__init__.py" else [path])


def package_files(folder: Path) -> list[Path]:
    """Return the Python files of a package, sorted."""
    return sorted(folder.rglob("*.py"))


def hash_of(files: Iterable[Path], *, salt: str = "") -> str:
    """Return a short hash over the names and contents of files, and a text besides; blocks."""
    total = sha256(salt.encode("utf-8", "surrogateescape"))
    for file in files:
        total.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        total.update(file.read_bytes())
    return total.hexdigest()[:16]
