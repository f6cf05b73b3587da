"""The projects and their images, and a run of the benchmark through the public functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .. import sandbox
from ..docker import daemon
from .images import image_of
from .projects import Project, make_projects


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test makes the images."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def projects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Project]:
    """Every project by the way in which its tests are run, its image made."""
    if reason := daemon.reason_to_skip():
        sandbox.skip(reason)
    made = make_projects(tmp_path_factory.mktemp("projects"))
    for project in made:
        image_of(project)
    return dict(zip(("pytest", "unittest", "django"), made, strict=True))


@pytest.fixture(scope="session")
def data_path(projects: dict[str, Project], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the rows of all projects."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("".join(json.dumps(project.row) + "\n" for project in projects.values()))
    return path


def run_options(folder: Path) -> dict[str, Any]:
    """Return what every run of these tests has in common."""
    return {
        "benchmark": "swebench_verified",
        "environment": "docker",
        "environment_params": {"pull": "never"},
        "results_dir": folder / "results",
        "data_dir": folder / "data",
        "task_concurrency": 2,
        "max_retries": 0,
        "progress": "none",
        "log_level": "CRITICAL",
    }


@pytest.fixture
def options(data_path: Path, tmp_path: Path) -> dict[str, Any]:
    """The options of a run of all projects."""
    return {**run_options(tmp_path), "benchmark_params": {"data_path": data_path}}


@pytest.fixture(autouse=True)
def leaves_nothing(projects: dict[str, Project]) -> Iterator[None]:
    """After the test no container or network of this process may be there."""
    before = daemon.my_resources()
    yield
    assert daemon.my_resources() - before == set()


@pytest.fixture
def busybox_image() -> str:
    """Return an image that has no repository."""
    return daemon.busybox_image()
