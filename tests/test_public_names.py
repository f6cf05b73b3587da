"""The public surface: what is exported, and that it is what the type checker sees."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import agentcompass

PUBLIC = [
    "AttemptsSkipped",
    "Benchmark",
    "ClosableEnvironment",
    "CommandStep",
    "Comparison",
    "CompassError",
    "ConfigError",
    "DEFAULT_OUTPUT_BYTES",
    "Environment",
    "Estimate",
    "Examiner",
    "ExecError",
    "ExecResult",
    "Execution",
    "Grader",
    "Harness",
    "HarnessError",
    "ImageBuild",
    "ImageEnvironment",
    "LaunchHandle",
    "LaunchStatus",
    "Message",
    "Metrics",
    "Model",
    "ModelError",
    "ModelStep",
    "NetworkPolicy",
    "NoteStep",
    "Notice",
    "OrchestrationResult",
    "OrchestrationSpec",
    "OutageChanged",
    "Outcome",
    "OutcomeClass",
    "PhaseChanged",
    "Plan",
    "ProgressEvent",
    "Recipe",
    "Reply",
    "RunComparison",
    "RunFinished",
    "RunPaths",
    "RunRequestSpec",
    "RunResult",
    "RunStarted",
    "RunStatus",
    "Session",
    "SessionError",
    "SessionFileNotFoundError",
    "SessionLostError",
    "SessionOpenError",
    "SessionPlan",
    "StoreError",
    "TIMEOUT_EXIT_CODE",
    "Task",
    "TaskView",
    "Tool",
    "ToolCall",
    "Trajectory",
    "TransferError",
    "Trial",
    "TrialError",
    "TrialFinished",
    "TrialProgressed",
    "TrialStarted",
    "UnknownComponentError",
    "Usage",
    "Verdict",
    "Verifier",
    "VerifierError",
    "WorkspaceBenchmark",
    "__version__",
    "async_launch",
    "async_run_evaluation",
    "benchmark",
    "compare_runs",
    "environment",
    "harness",
    "launch",
    "read_orchestration",
    "recipe",
    "run_evaluation",
    "start_launch",
]


def test_exported_names_are_these() -> None:
    """A name appears or disappears only on purpose."""
    assert sorted(agentcompass.__all__) == PUBLIC


def test_every_name_can_be_imported() -> None:
    """Each lazy name leads somewhere."""
    for name in agentcompass.__all__:
        assert getattr(agentcompass, name) is not None


def test_lazy_names_equal_what_type_checkers_see() -> None:
    """The names under TYPE_CHECKING and the lazy ones are the same."""
    tree = ast.parse(Path(agentcompass.__file__).read_text("utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set().union(*agentcompass._LAZY.values())


def test_import_alone_loads_nothing_heavy() -> None:
    """``import agentcompass`` brings neither pydantic nor an event loop."""
    code = (
        "import sys, agentcompass; print([m for m in ('pydantic', 'anyio', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
