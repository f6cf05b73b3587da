"""Recipes of a run of its own: loaded for it only, named when they are wrong, recorded where they applied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from agentcompass.engine.recipes import find_recipes
from agentcompass.engine.registry import component_ids
from agentcompass.errors import ConfigError
from agentcompass.protocols import Outcome, Trial
from agentcompass.records import RunRecord, RunStatus
from agentcompass.spec.orchestration import OrchestrationSpec

from .lab import RIGHT, Lab, trials
from .test_orchestration import spec

RECIPE = """
from dataclasses import replace
from agentcompass import recipe
from .settings import SECONDS

@recipe({id!r})
class Patient:
    priority = {priority}
    def matches(self, plan):
        return plan.benchmark == {benchmark!r}
    def apply(self, plan):
        return {apply}
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a recipe package and returns the folder of packages."""

    def write_package(
        id: str = "patient",  # noqa: A002
        *,
        package: str = "",
        apply: str = "replace(plan, task_timeout_seconds=SECONDS)",
        benchmark: str = "fake",
        priority: int = 1,
        seconds: float = 0.01,
    ) -> Path:
        folder = tmp_path / "my recipes" / (package or id)
        folder.mkdir(parents=True, exist_ok=True)
        text = RECIPE.format(id=id, apply=apply, benchmark=benchmark, priority=priority)
        (folder / "__init__.py").write_text(text)
        (folder / "settings.py").write_text(f"SECONDS = {seconds}\n")
        return folder.parent

    return write_package


def test_packages_are_found_in_order(write: Write) -> None:
    """By priority, then id; a folder that is a package itself is one; the registry stays as it was."""
    write("b", priority=1)
    write("a", priority=1)
    folder = write("c", priority=0)
    found = [named.id for named in find_recipes([folder], enabled=None)]
    assert [name for name in found if name in "abc"] == ["c", "a", "b"]
    assert [named.id for named in find_recipes([folder / "a"], enabled=["a"])] == ["a"]
    assert not {"a", "b", "c"} & set(component_ids("recipe"))
    assert [named.id for named in find_recipes([folder], enabled=["a", "c"])] == ["c", "a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nowhere", "nowhere"),
        ("x = 1", "registers no recipe"),
        ("def broken(", "SyntaxError"),
        (
            "from agentcompass import harness\n@harness('h1')\nclass H:\n    pass\n",
            "registers the harness 'h1'; a recipe package may hold recipes only",
        ),
    ],
)
def test_wrong_package_is_named_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    """Whatever is wrong with it, before anything runs."""
    package = tmp_path / "bad" / "__init__.py"
    package.parent.mkdir()
    package.write_text(text)
    with pytest.raises(ConfigError) as caught:
        find_recipes([tmp_path], enabled=None)
    assert str(package) in str(caught.value)
    assert message in str(caught.value)


def test_two_recipes_of_one_id_are_refused(write: Write) -> None:
    """Which one would apply must not depend on the order of folders."""
    write("swebench")
    with pytest.raises(ConfigError, match=r"recipe 'swebench' is there twice: .*; rename one"):
        find_recipes([write("swebench")], enabled=None)


def test_folder_without_packages_is_refused(tmp_path: Path) -> None:
    """A mistyped folder is no silent nothing."""
    with pytest.raises(ConfigError, match="there is no package in"):
        find_recipes([tmp_path], enabled=None)


@pytest.mark.anyio
async def test_recipe_applies_and_is_recorded_with_its_source(lab: Lab, write: Write) -> None:
    """Only what applied stands in run.json; a changed recipe is another way of measuring."""

    async def agent(trial: Trial) -> Outcome:
        return RIGHT

    write("other", benchmark="something else")
    folder = write("patient", seconds=30)
    first = await lab.run(agent, recipe_dirs=[folder], benchmark_params={"tasks": 1})
    assert first.paths is not None
    record = msgspec.json.decode(Path(first.paths.run_json).read_bytes(), type=RunRecord)  # noqa: ASYNC240
    [recorded] = record.recipes
    assert (recorded.id, recorded.priority, len(recorded.hash)) == ("patient", 1, 16)
    same = await lab.run(agent, recipe_dirs=[folder], benchmark_params={"tasks": 1}, run_id=first.run_id)
    assert same.status is RunStatus.COMPLETED
    write("patient", seconds=4000)
    other = await lab.run(agent, recipe_dirs=[folder], benchmark_params={"tasks": 1}, run_id=first.run_id)
    assert "recipes.patient.hash" in str(other.error)
    none = await lab.run(agent, benchmark_params={"tasks": 1}, run_id=first.run_id)
    assert "recipes.patient" in str(none.error)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("apply", "message"),
    [
        ("None", "returned a NoneType, not a Plan"),
        ("replace(plan, benchmark='easier')", "changed benchmark; it may only change how"),
        ("1 / 0", "raised ZeroDivisionError"),
    ],
)
async def test_recipe_that_goes_too_far_costs_its_tasks(
    lab: Lab, write: Write, apply: str, message: str
) -> None:
    """The task is missing data with the recipe's name, and the run goes on."""
    result = await lab.run(recipe_dirs=[write(apply=apply)], benchmark_params={"tasks": 2})
    [first, *_] = trials(result)
    assert first.failure is not None
    assert (first.failure.error, first.outcome) == ("RecipeError", "internal_error")
    assert message in first.failure.message


@pytest.mark.anyio
@pytest.mark.slow
async def test_recipes_of_one_run_do_not_apply_in_the_next(lab: Lab, write: Write) -> None:
    """They were trusted for that run."""

    async def agent(trial: Trial) -> Outcome:
        return RIGHT

    first = await lab.run(agent, recipe_dirs=[write(seconds=30)], benchmark_params={"tasks": 1})
    second = await lab.run(agent, benchmark_params={"tasks": 1})
    for result, expected in ((first, 1), (second, 0)):
        assert result.paths is not None
        data = Path(result.paths.run_json).read_bytes()  # noqa: ASYNC240
        assert len(msgspec.json.decode(data, type=RunRecord).recipes) == expected


def test_all_mistakes_of_all_requests_come_at_once(lab: Lab) -> None:
    """Wrong parameters and ids are found before anything starts, each with its request."""
    from agentcompass.engine.orchestration import resolve_all

    wrong: OrchestrationSpec = spec(
        lab,
        {"name": "a", "harness": "oracle", "environment": "local", "benchmark": {"id": "fake", "taks": 3}},
        {"name": "b", "harness": "orcle", "environment": "local"},
        {"name": "c", "harness": "oracle", "environment": {"id": "local", "network_policy": "none"}},
    )
    with pytest.raises(ConfigError) as caught:
        resolve_all(wrong)
    first, second, third = str(caught.value).splitlines()
    assert first.startswith("requests.0.benchmark.taks: no such option; did you mean 'tasks'")
    assert second.startswith("requests.1.harness: unknown harness 'orcle'; did you mean 'oracle'")
    assert third.startswith("requests.2.environment.network_policy")
