"""Evaluate agents: any benchmark x any harness x any environment x any model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__
from .errors import (
    CompassError,
    ConfigError,
    ExecError,
    HarnessError,
    ModelError,
    SessionError,
    SessionFileNotFoundError,
    SessionLostError,
    SessionOpenError,
    StoreError,
    TransferError,
    TrialError,
    UnknownComponentError,
    VerifierError,
)
from .protocols import (
    DEFAULT_OUTPUT_BYTES,
    TIMEOUT_EXIT_CODE,
    Benchmark,
    ClosableEnvironment,
    Environment,
    Examiner,
    ExecResult,
    Grader,
    Harness,
    ImageBuild,
    ImageEnvironment,
    Message,
    Model,
    Outcome,
    Plan,
    Recipe,
    Reply,
    Session,
    SessionPlan,
    Task,
    TaskView,
    Tool,
    Trajectory,
    Trial,
    Verdict,
    Verifier,
    WorkspaceBenchmark,
)
from .records import (
    AttemptsSkipped,
    CommandStep,
    Estimate,
    Metrics,
    ModelStep,
    NoteStep,
    Notice,
    OutageChanged,
    OutcomeClass,
    PhaseChanged,
    ProgressEvent,
    RunFinished,
    RunPaths,
    RunStarted,
    RunStatus,
    ToolCall,
    TrialFinished,
    TrialProgressed,
    TrialStarted,
    Usage,
)
from .spec.network import NetworkPolicy

if TYPE_CHECKING:
    from .engine.api import async_launch, async_run_evaluation, launch, run_evaluation
    from .engine.compare import Comparison, RunComparison, compare_runs
    from .engine.configuration import read_orchestration
    from .engine.control import LaunchStatus
    from .engine.handle import LaunchHandle, start_launch
    from .engine.registry import benchmark, environment, harness, recipe
    from .engine.result import Execution, OrchestrationResult, RunResult
    from .spec.orchestration import OrchestrationSpec, RunRequestSpec

__all__ = [
    "DEFAULT_OUTPUT_BYTES",
    "TIMEOUT_EXIT_CODE",
    "AttemptsSkipped",
    "Benchmark",
    "ClosableEnvironment",
    "CommandStep",
    "Comparison",
    "CompassError",
    "ConfigError",
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

# Imported on first use: `import agentcompass` must not cost what pydantic and an event loop cost.
_LAZY = {
    "engine.api": {"async_launch", "async_run_evaluation", "launch", "run_evaluation"},
    "engine.compare": {"Comparison", "RunComparison", "compare_runs"},
    "engine.configuration": {"read_orchestration"},
    "engine.control": {"LaunchStatus"},
    "engine.handle": {"LaunchHandle", "start_launch"},
    "engine.registry": {"benchmark", "environment", "harness", "recipe"},
    "engine.result": {"Execution", "OrchestrationResult", "RunResult"},
    "spec.orchestration": {"OrchestrationSpec", "RunRequestSpec"},
}


def __getattr__(name: str) -> object:
    for module, names in _LAZY.items():
        if name in names:
            value = getattr(import_module(f".{module}", __name__), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
