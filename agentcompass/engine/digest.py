"""Identify a task by what it consists of, so that results of another one are never taken for its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ConfigError
from ..protocols import ImageBuild, Task

TreeDigest = Callable[[Path], str]


def tree_digest(root: Path) -> str:
    """
    Return a hash of a directory's content, wherever it lies: names, links, and which files are programs.

    Of the modes only the owner's right to execute counts, since the others depend on who copied it here.
    Reads everything, so it blocks.
    """
    total = blake2b(digest_size=16)
    for path in sorted(root.rglob("*")):
        total.update(repr((os.fsencode(path.relative_to(root)), *_entry(path))).encode())
    return total.hexdigest()


def _entry(path: Path) -> Iterator[object]:
    if path.is_symlink():
        yield "link"
        yield os.fsencode(path.readlink())
    elif path.is_file():
        yield bool(path.stat().st_mode & 0o100)
        with path.open("rb") as file:
            yield file_digest(file, "blake2b").hexdigest()
    else:
        yield "directory" if path.is_dir() else "special"


def task_digest(task: Task, *, tree_digest: TreeDigest = tree_digest) -> str:
    """
    Return a short hash of everything that a task consists of.

    Args:
        tree_digest: Hashes the context of a task's image, which many tasks may share.

    Raises:
        ConfigError: The image cannot be built: its context or Dockerfile cannot be read.
    """
    content = msgspec.to_builtins(task, enc_hook=repr, order="deterministic")
    # A task that leaves these out is what it was before they existed; a deadline is no part of the content.
    del content["build"], content["verifier_timeout_seconds"]
    if not task.question:
        del content["question"]
    if task.build is not None:
        content["build"] = _build_content(task.id, task.build, tree_digest)
    return blake2b(msgspec.json.encode(content), digest_size=8).hexdigest()


def _build_content(task_id: str, build: ImageBuild, tree_digest: TreeDigest) -> dict[str, Any]:
    """Say what makes the image, without where that lies on this machine."""
    dockerfile = build.context / build.dockerfile
    if not dockerfile.is_file():
        raise ConfigError(
            f"task {task_id!r}: there is no Dockerfile {str(dockerfile)!r} to build its image of"
        )
    try:
        context = tree_digest(build.context)
    except OSError as error:
        raise ConfigError(
            f"task {task_id!r}: {error.filename!r}, part of its image, cannot be read: {error.strerror}"
        ) from error
    return {"context": context, "dockerfile": build.dockerfile, "args": sorted(build.args.items())}
