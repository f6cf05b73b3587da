"""Run SWE-bench tasks in the images that are published for them, one per instance."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from agentcompass import Plan, recipe

_BENCHMARKS = frozenset({"swebench", "swebench_verified", "swebench_lite", "swebench_multilingual"})
_WORKDIR = "/testbed"
_PULL_SECONDS = 3600.0
"""An image has a few gigabytes, and many may be pulled at once."""


def image_name(instance_id: str) -> str:
    """Return the published name of an instance's image; Docker Hub takes no double underscores."""
    return f"swebench/sweb.eval.x86_64.{instance_id.lower().replace('__', '_1776_')}:latest"


@recipe("swebench")
class SweBenchImages:
    """Names the image, the work tree and how long a pull may take; a row that names its image keeps it."""

    priority: ClassVar[int] = 100

    def matches(self, plan: Plan) -> bool:
        """Apply to all benchmarks of the family in containers."""
        return plan.environment == "docker" and plan.benchmark in _BENCHMARKS

    def apply(self, plan: Plan) -> Plan:
        """Fill in what the plan leaves open."""
        image = plan.image or ("" if plan.build else image_name(plan.task.id))
        return replace(
            plan, image=image, workdir=plan.workdir or _WORKDIR, open_timeout_seconds=_PULL_SECONDS
        )
