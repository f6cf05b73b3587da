"""The public functions: the same engine from async code, scripts and notebooks."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from anyio import to_thread

from ..errors import ConfigError
from ..spec.options import RunArguments
from ..spec.orchestration import OrchestrationSpec, as_orchestration
from .configuration import configured, run_arguments
from .host import run_sync
from .orchestration import plan_orchestration, resolve_all, run_orchestration
from .resolve import BrokenRequest
from .result import OrchestrationResult, RunResult
from .stop import StopControl
from .survey import PlannedRun

P = ParamSpec("P")
R = TypeVar("R")


def _takes(
    model: Callable[P, RunArguments],
) -> Callable[[Callable[[RunArguments], R]], Callable[P, R]]:
    """Give a function the model's fields as its keyword arguments, validated into the model."""

    def decorate(function: Callable[[RunArguments], R]) -> Callable[P, R]:
        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if args:
                raise ConfigError(f"{function.__name__} takes keyword arguments only")
            return function(run_arguments(kwargs))

        checked.__signature__ = signature(model).replace(  # type: ignore[attr-defined]
            return_annotation=signature(function).return_annotation
        )
        return checked

    return decorate


@_takes(RunArguments)
def run_evaluation(arguments: RunArguments) -> RunResult:
    """
    Evaluate one benchmark x harness x environment x model and return its numbers and paths.

    Works in scripts, in threads and, on a thread of its own, where an event loop is running already (a
    notebook cell). Returns also when tasks failed or the deadline hit: see ``status``. Ctrl-C stops the run
    in order, writes what is finished, and raises ``KeyboardInterrupt``.

    Raises:
        ConfigError: The input is wrong; nothing was run.
    """
    return _only(_launch(as_orchestration(arguments)))


@_takes(RunArguments)
async def async_run_evaluation(arguments: RunArguments) -> RunResult:
    """
    Do what ``run_evaluation`` does inside a running event loop; several at once are fine.

    Raises:
        ConfigError: The input is wrong; nothing was run.
    """
    return _only(await _async_launch(as_orchestration(arguments)))


def launch(spec: OrchestrationSpec) -> OrchestrationResult:
    """
    Run an ordered set of named requests that share one task limit and one deadline.

    Raises:
        ConfigError: The specification is wrong; nothing was run.
    """
    return _launch(configured(spec))


def _launch(spec: OrchestrationSpec) -> OrchestrationResult:
    result, signal_number = launch_until_signal(spec)
    if signal_number == signal.SIGINT:
        raise KeyboardInterrupt
    if signal_number is not None:
        signal.raise_signal(signal_number)
    return result


def launch_until_signal(spec: OrchestrationSpec) -> tuple[OrchestrationResult, int | None]:
    """Run requests; return what there is, and the signal that stopped them, if one did."""
    requests = resolve_all(spec)

    async def main(stop: StopControl) -> OrchestrationResult:
        return await run_orchestration(spec, requests, stop=stop)

    outcome = run_sync(main)
    return outcome.value, outcome.signal_number


def plan(spec: OrchestrationSpec) -> list[PlannedRun | BrokenRequest]:
    """
    Say what ``launch`` would do, or why a request cannot run, and write nothing.

    Raises:
        ConfigError: The specification is wrong.
    """
    requests = resolve_all(spec)

    async def main(_stop: StopControl) -> list[PlannedRun | BrokenRequest]:
        return await plan_orchestration(requests)

    return run_sync(main).value


async def async_launch(spec: OrchestrationSpec) -> OrchestrationResult:
    """
    Run an ordered set of named requests inside a running event loop.

    Cancelling it stops the run in order: live attempts are recorded as cancelled, and the summary is written.

    Raises:
        ConfigError: The specification is wrong; nothing was run.
    """
    return await _async_launch(await to_thread.run_sync(configured, spec))


async def _async_launch(spec: OrchestrationSpec) -> OrchestrationResult:
    requests = await to_thread.run_sync(resolve_all, spec)
    return await run_orchestration(spec, requests, stop=StopControl())


def _only(result: OrchestrationResult) -> RunResult:
    """Return the single request's result; input that turned out wrong before any attempt is raised."""
    [request] = result.requests
    if isinstance(request.error, ConfigError):
        raise request.error
    return request
