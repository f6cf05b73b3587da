"""A task's digest changes with its content and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcompass.engine.digest import task_digest, tree_digest
from agentcompass.errors import ConfigError
from agentcompass.protocols import ImageBuild, Task


def context(folder: Path, *, dockerfile: str = "FROM busybox\n") -> Path:
    """Write the directory that an image is built from."""
    (folder / "tests").mkdir(parents=True)
    (folder / "Dockerfile").write_text(dockerfile)
    (folder / "tests" / "run.sh").write_text("exit 0\n")
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("tests/run.sh")
    return folder


def built(context: Path, **args: str) -> Task:
    return Task(id="a", prompt="p", build=ImageBuild(context=context, args=args))


def test_digest_covers_everything_that_counts() -> None:
    """A task with another hidden test is another task."""
    task = Task(id="a", prompt="p", hidden={"test": "1", "other": {2, 1}})
    assert task_digest(task) == task_digest(Task(id="a", prompt="p", hidden={"other": {1, 2}, "test": "1"}))
    assert task_digest(task) != task_digest(Task(id="a", prompt="p", hidden={"test": "2"}))


def test_digest_stays_from_version_to_version() -> None:
    """Journals have it: what they hold must be found again."""
    task = Task(id="a", prompt="p", files={"f": b"x"}, hidden={"b": 1.5, "a": {2, 1}})
    assert task_digest(task) == "51e8ee362844cb66"


def test_image_is_the_same_wherever_its_directory_lies(tmp_path: Path) -> None:
    """A copy has the digest of the original, also where other rights are customary."""
    here, there = context(tmp_path / "here"), context(tmp_path / "there")
    (there / "Dockerfile").chmod(0o600)
    assert task_digest(built(here)) == task_digest(built(there))


def test_image_of_another_content_is_another(tmp_path: Path) -> None:
    """Content, names, links, programs, empty directories and arguments count."""
    contexts = [context(tmp_path / str(number)) for number in range(6)]
    (contexts[1] / "tests" / "run.sh").write_text("exit 1\n")
    (contexts[2] / "tests" / "run.sh").chmod(0o755)
    (contexts[3] / "tests" / "run.sh").rename(contexts[3] / "run.sh")
    (contexts[4] / "empty").rmdir()
    (contexts[5] / "link").unlink()
    (contexts[5] / "link").symlink_to("Dockerfile")
    tasks = [*map(built, contexts), built(contexts[0], VERSION="2"), Task(id="a", prompt="p")]
    assert len(set(map(task_digest, tasks))) == len(tasks)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Neither out of the directory nor round in it."""
    here = context(tmp_path / "here")
    (here / "outside").symlink_to(tmp_path)
    (here / "round").symlink_to(".")
    before = tree_digest(here)
    (tmp_path / "new").write_bytes(b"")
    assert tree_digest(here) == before


def test_missing_dockerfile_is_named(tmp_path: Path) -> None:
    """With the task that needs it."""
    with pytest.raises(ConfigError, match=r"task 'a': there is no Dockerfile '.*/nowhere/Dockerfile'"):
        task_digest(built(tmp_path / "nowhere"))
