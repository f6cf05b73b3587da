"""
Small repositories with an issue each, as rows of the published schema.

Each has history beyond the base commit, with the solution in it: what an agent must not see.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FUTURE = "CANARY-OF-THE-FUTURE"
"""Stands in commits after the base only."""

_ADD_FUTURE_VERSION = 1
"""Counts the changes of what the row does not tell: what lies beyond the base."""
_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "someone",
    "GIT_AUTHOR_EMAIL": "someone@example.com",
    "GIT_COMMITTER_NAME": "someone",
    "GIT_COMMITTER_EMAIL": "someone@example.com",
    "GIT_AUTHOR_DATE": "2021-03-04T05:06:07Z",
    "GIT_COMMITTER_DATE": "2021-03-04T05:06:07Z",
}

_BASE = """\
def resize(value, factor):
    return value * factor


def label(value):
    return f"<{value}>"
"""
_FIXED_RESIZE = """\
def resize(value, factor):
    if factor < 0:
        raise ValueError("factor must not be negative")
    return value * factor
"""
_FIXED_LABEL = """\
def label(value):
    return f"<{str(value).upper()}>"
"""
_FIXED = f"{_FIXED_RESIZE}\n\n{_FIXED_LABEL}"
_PARTLY_FIXED = _BASE.replace(_BASE.partition("\n\n\n")[0] + "\n", _FIXED_RESIZE)
_BREAKING = _FIXED.replace("return value * factor", "return value * factor + 1")

_PYTEST_TESTS = """\
from widgets.core import resize


def test_twice():
    assert resize(2, 2) == 4
"""
_PYTEST_NEW_TESTS = """\
import pytest

from widgets.core import label, resize


def test_twice():
    assert resize(2, 2) == 4


def test_negative():
    with pytest.raises(ValueError):
        resize(2, -1)


@pytest.mark.parametrize("text", ["a", "b"])
def test_label(text):
    assert label(text) == f"<{text.upper()}>"
"""
_UNITTEST_TESTS = """\
import unittest

from widgets.core import resize


class CoreTests(unittest.TestCase):
    def test_twice(self):
        self.assertEqual(resize(2, 2), 4)
"""
_UNITTEST_NEW_TESTS = """\
import unittest

from widgets.core import label, resize


class CoreTests(unittest.TestCase):
    def test_twice(self):
        self.assertEqual(resize(2, 2), 4)

    def test_negative(self):
        with self.assertRaises(ValueError):
            resize(2, -1)

    def test_label(self):
        self.assertEqual(label("a"), "<A>")
"""
_RUNTESTS = """\
#!/usr/bin/env python3
import sys
import unittest
from pathlib import Path

here = Path(__file__).parent
sys.path[:0] = [str(here), str(here.parent)]
labels = [argument for argument in sys.argv[1:] if not argument.startswith("--") and not argument.isdigit()]
print("Testing against widgets installed in", here.parent)
unittest.main(module=None, argv=["runtests.py", *labels], verbosity=2)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """
    A repository and its row.

    Args:
        folder: The work tree with its ``.git``, in the state in which an image holds it.
        row: In the published schema.
        partial: A patch that makes one of the failing tests pass.
        breaking: A patch that makes all failing tests pass and breaks another one.
    """

    folder: Path
    row: Mapping[str, Any]
    partial: str
    breaking: str

    @property
    def id(self) -> str:
        return str(self.row["instance_id"])

    @property
    def key(self) -> str:
        """What the image consists of; commits have the same hashes each time."""
        return f"{json.dumps(self.row)} {_ADD_FUTURE_VERSION}"

    @property
    def image(self) -> str:
        """The name under which its image would be published."""
        return f"swebench/sweb.eval.x86_64.{self.id.replace('__', '_1776_')}:latest"


def make_projects(folder: Path) -> list[Project]:
    """Make one repository for each way in which tests are run; blocks."""
    return [_pytest_project(folder), _unittest_project(folder), _django_project(folder)]


def _pytest_project(folder: Path) -> Project:
    """A row of the classic schema; the head is the base, and the future hides in refs, tags and reflogs."""
    repository = _Repository(folder / "pallets__flask-1")
    repository.write(
        {"widgets/__init__.py": "", "widgets/core.py": _BASE, "tests/test_core.py": _PYTEST_TESTS}
    )
    base = repository.commit("base")
    test_patch = repository.diff({"tests/test_core.py": _PYTEST_NEW_TESTS})
    patches = repository.patches()
    repository.add_future()
    repository.git("reset", "-q", "--hard", base)
    names = ["test_negative", "test_label[a]", "test_label[b]"]
    row = _row(
        repository, base, repo="pallets/flask", version="2.0", test_patch=test_patch, patch=patches["fixed"]
    )
    row |= {
        "FAIL_TO_PASS": json.dumps([f"tests/test_core.py::{name}" for name in names]),
        "PASS_TO_PASS": json.dumps(["tests/test_core.py::test_twice"]),
    }
    return _project(repository, row, patches)


def _unittest_project(folder: Path) -> Project:
    """A row that brings its script; the published images' own commit is on top of the base."""
    repository = _Repository(folder / "acme__widgets-2")
    tests = {"tests/__init__.py": "", "tests/test_core.py": _UNITTEST_TESTS}
    repository.write({"widgets/__init__.py": "", "widgets/core.py": _BASE, **tests})
    base = repository.commit("base")
    test_patch = repository.diff({"tests/test_core.py": _UNITTEST_NEW_TESTS})
    patches = repository.patches()
    repository.add_future()
    repository.git("checkout", "-q", "-B", "main", base)
    repository.git("commit", "-q", "--allow-empty", "-m", "SWE-bench", author="SWE-bench")
    script = "\n".join(
        [
            "#!/bin/bash",
            "set -uxo pipefail",
            "source /opt/miniconda3/bin/activate",
            "conda activate testbed",
            "cd /testbed",
            f"git checkout {base} tests/test_core.py",
            "git apply -v - <<'EOF_114329324912'",
            test_patch,
            "EOF_114329324912",
            ": '>>>>> Start Test Output'",
            "python -m unittest -v tests.test_core",
            ": '>>>>> End Test Output'",
            f"git checkout {base} tests/test_core.py",
        ]
    )
    row = _row(
        repository, base, repo="acme/widgets", version="1.2", test_patch=test_patch, patch=patches["fixed"]
    )
    row |= {"eval_script": script, "log_parser": "parse_log_django", "eval_type": "pass_and_fail"}
    row |= _unittest_names("tests.test_core.CoreTests")
    return _project(repository, row, patches)


def _django_project(folder: Path) -> Project:
    """A row of the classic schema; the head is far beyond the base."""
    repository = _Repository(folder / "django__django-3")
    tests = {"tests/core/__init__.py": "", "tests/core/test_core.py": _UNITTEST_TESTS}
    repository.write({"widgets/__init__.py": "", "widgets/core.py": _BASE, **tests})
    repository.write({"tests/runtests.py": _RUNTESTS}, executable=True)
    base = repository.commit("base")
    test_patch = repository.diff({"tests/core/test_core.py": _UNITTEST_NEW_TESTS})
    patches = repository.patches()
    repository.add_future()
    row = _row(
        repository, base, repo="django/django", version="4.0", test_patch=test_patch, patch=patches["fixed"]
    )
    row |= _unittest_names("core.test_core.CoreTests")
    return _project(repository, row, patches)


def _unittest_names(cls: str) -> dict[str, str]:
    """Name the tests as unittest prints them since Python 3.11."""
    names = {name: f"{name} ({cls}.{name})" for name in ("test_negative", "test_label", "test_twice")}
    return {
        "FAIL_TO_PASS": json.dumps([names["test_negative"], names["test_label"]]),
        "PASS_TO_PASS": json.dumps([names["test_twice"]]),
    }


def _row(repository: _Repository, base: str, **fields: str) -> dict[str, str]:
    return {
        "instance_id": repository.folder.name,
        "base_commit": base,
        "problem_statement": f"In {fields['repo']}, resize() takes negative factors, and labels are small.",
        "hints_text": "CANARY-OF-THE-HINTS",
        "created_at": "2021-03-04T05:06:07Z",
        "environment_setup_commit": base,
        "difficulty": "<15 min fix",
        **fields,
    }


def _project(repository: _Repository, row: dict[str, str], patches: Mapping[str, str]) -> Project:
    return Project(
        folder=repository.folder, row=row, partial=patches["partly fixed"], breaking=patches["breaking"]
    )


class _Repository:
    """A git repository whose commits have the same hashes each time that it is made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, author: str = "someone") -> str:
        environment = {**os.environ, **_ENVIRONMENT, "GIT_AUTHOR_NAME": author}
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    def write(self, files: Mapping[str, str], *, executable: bool = False) -> None:
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            path.chmod(0o755 if executable else 0o644)

    def commit(self, message: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD").strip()

    def diff(self, files: Mapping[str, str]) -> str:
        """Return the patch that would change files so, and leave them as they are."""
        self.write(files)
        patch = self.git("diff")
        self.git("checkout", "-q", "--", ".")
        return patch

    def patches(self) -> dict[str, str]:
        versions = {"fixed": _FIXED, "partly fixed": _PARTLY_FIXED, "breaking": _BREAKING}
        return {name: self.diff({"widgets/core.py": content}) for name, content in versions.items()}

    def add_future(self) -> None:
        """Commit the solution, and leave it wherever a repository can hold a commit."""
        self.write({"widgets/core.py": _FIXED, "FUTURE": FUTURE})
        solution = self.commit(FUTURE)
        self.git("tag", "v2.0")
        self.git("tag", "-a", "-m", FUTURE, "v2.1")
        self.git("branch", "next")
        self.git("update-ref", "refs/remotes/origin/main", solution)
        self.git("remote", "add", "origin", "https://example.com/widgets.git")
        self.git("notes", "add", "-m", FUTURE)
        self.write({"FUTURE": f"{FUTURE} stray"})
        self.commit(f"{FUTURE} amended away")
        self.git("reset", "-q", "--hard", "HEAD~1")
        self.write({"FUTURE": f"{FUTURE} stashed"})
        self.git("stash", "-q")
