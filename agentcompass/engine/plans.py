"""How the tasks of a request will be run: image, directory, deadlines, with recipes and options applied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..protocols import Plan, Task, TaskView
from ..records import RecipeRecord
from ..spec.options import ExecutionOptions
from .job import Components
from .loading import PlannedTask
from .recipes import apply_recipes, matching

DEFAULT_TASK_TIMEOUT_SECONDS = 3600.0
DEFAULT_VERIFIER_TIMEOUT_SECONDS = 1800.0
DEFAULT_OPEN_TIMEOUT_SECONDS = 600.0


def plan_of(task: Task, parts: Components, execution: ExecutionOptions) -> Plan:
    """
    Say how a task will be run.

    Raises:
        RecipeError: A recipe broke or went too far.
    """
    plan = apply_recipes(_bare_plan(task, parts), parts.recipes)
    return replace(
        plan,
        open_timeout_seconds=execution.open_timeout_seconds or plan.open_timeout_seconds,
        task_timeout_seconds=execution.task_timeout_seconds or plan.task_timeout_seconds,
        verifier_timeout_seconds=execution.verifier_timeout_seconds or plan.verifier_timeout_seconds,
    )


def _bare_plan(task: Task, parts: Components) -> Plan:
    return Plan(
        benchmark=parts.benchmark_id,
        harness=parts.harness_id,
        environment=parts.environment_id,
        task=_view(task, parts),
        image=task.image,
        build=task.build,
        open_timeout_seconds=DEFAULT_OPEN_TIMEOUT_SECONDS,
        task_timeout_seconds=task.timeout_seconds or DEFAULT_TASK_TIMEOUT_SECONDS,
        verifier_timeout_seconds=task.verifier_timeout_seconds or DEFAULT_VERIFIER_TIMEOUT_SECONDS,
    )


def _view(task: Task, parts: Components) -> TaskView:
    notice = parts.network.notice if parts.needs_session else ""

    def with_notice(text: str) -> str:
        return f"{text.rstrip()}\n\n{notice}\n" if notice and text else text

    return TaskView(
        id=task.id,
        prompt=with_notice(task.prompt),
        question=with_notice(task.question),
        files=task.files,
    )


def applied_recipes(tasks: Iterable[PlannedTask], parts: Components) -> list[RecipeRecord]:
    """Return the recipes that apply to any of the tasks, in their order; blocks."""
    unmatched = list(parts.recipes)
    for planned in tasks:
        if not unmatched:
            break
        plan = _bare_plan(planned.task, parts)
        unmatched = [named for named in unmatched if not matching(named, plan)]
    return [named.record() for named in parts.recipes if named not in unmatched]
