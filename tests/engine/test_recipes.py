"""The recipes that ship with us are found without being installed, and adapt nothing but their own plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcompass.engine.registry import component_ids, find_component
from agentcompass.protocols import ImageBuild, Plan, Recipe, TaskView


def plan(**changes: object) -> Plan:
    fields = {"benchmark": "swebench_verified", "harness": "h", "environment": "docker"}
    return Plan(task=TaskView(id="astropy__Astropy-12907", prompt=""), **{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def swebench() -> Recipe:
    recipe: Recipe = find_component("recipe", "swebench").build({})[0]
    return recipe


def test_shipped_recipes_are_found() -> None:
    """Beside the package in a checkout, inside of it when installed."""
    assert "swebench" in component_ids("recipe")


def test_published_image_is_named(swebench: Recipe) -> None:
    """As on Docker Hub, with the work tree and time for a pull."""
    assert swebench.matches(plan())
    adapted = swebench.apply(plan())
    assert adapted.image == "swebench/sweb.eval.x86_64.astropy_1776_astropy-12907:latest"
    assert adapted.workdir == "/testbed"
    assert adapted.open_timeout_seconds == 3600


@pytest.mark.parametrize("changes", [{"environment": "local"}, {"benchmark": "humaneval"}])
def test_other_plans_are_left_alone(swebench: Recipe, changes: dict[str, object]) -> None:
    """It matches containers and its own benchmarks."""
    assert not swebench.matches(plan(**changes))


def test_what_a_task_names_is_kept(swebench: Recipe) -> None:
    """An image, a build or a directory of the task's own."""
    assert swebench.apply(plan(image="mine")).image == "mine"
    assert swebench.apply(plan(build=ImageBuild(context=Path("x")))).image == ""
    assert swebench.apply(plan(workdir="/src")).workdir == "/src"
