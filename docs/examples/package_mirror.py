"""A recipe: agent programs on this machine install packages from a mirror, and get more time for it."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from agentcompass import Plan, recipe


@recipe("package_mirror")
class PackageMirror:
    """Adapts the plans of the command harness."""

    priority: ClassVar[int] = 100

    def matches(self, plan: Plan) -> bool:
        """Apply to agent programs in local sessions."""
        return plan.harness == "command" and plan.environment == "local"

    def apply(self, plan: Plan) -> Plan:
        """Name the mirror and allow two hours."""
        env = {**plan.env, "PIP_INDEX_URL": "https://mirror.example/simple"}
        return replace(plan, env=env, task_timeout_seconds=7200.0)
