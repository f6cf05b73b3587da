"""What a request would do, found out without doing it: counts, images, worst case, and what cannot work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from ..clock import Clock, utc_text
from ..errors import CompassError
from ..protocols import ImageEnvironment
from ..records import RunRecord
from .datasets import Datasets
from .loading import PlannedTask
from .prepare import background_of, load_and_look_back, planned_image, run_record
from .resolve import ResolvedRequest
from .resume import kept

_OUTPUT_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_PROBLEMS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """
    What a request would do.

    Args:
        tasks: How many tasks are selected.
        attempts: How many attempts that makes.
        kept: How many of them are settled by earlier results.
        kept_from: The run that they are in; empty if there is none.
        folder: Where the run directory goes.
        images: The images that the sessions of what is left need.
        images_missing: Those of them that are not there yet; None if nobody can tell.
        max_output_tokens: Most tokens that models may write, retries of attempts included; None if no limit
            makes it computable.
        max_output_cost_usd: What these cost at most; None if that or the price is unknown.
        problems: Tasks that cannot be planned, and why; the first few.
        warnings: What may be a mistake.
        record: Everything as resolved.
    """

    name: str
    benchmark: str
    harness: str
    environment: str
    model: str
    tasks: int
    attempts: int
    kept: int
    kept_from: str = ""
    folder: str
    images: list[str]
    images_missing: list[str] | None = None
    max_output_tokens: int | None = None
    max_output_cost_usd: float | None = None
    problems: list[str]
    warnings: list[str]
    record: RunRecord


async def survey(request: ResolvedRequest, *, folder: str, datasets: Datasets, clock: Clock) -> PlannedRun:
    """
    Say what running a request would lead to, and write nothing.

    Raises:
        ConfigError: Something is wrong with the input.
    """
    loaded, found = await load_and_look_back(request, folder, datasets)
    tasks = loaded.tasks
    started_at = utc_text(clock.wall())
    record = await to_thread.run_sync(run_record, request, loaded, started_at)
    background = await to_thread.run_sync(background_of, found, request, tasks, record)
    settled = kept(tasks, background.earlier, k=record.k, in_order=record.strategy == "pass")
    attempts = len(tasks) * record.k
    done = settled.attempts + settled.needless
    images, problems = await to_thread.run_sync(_images_and_problems, request, tasks)
    tokens = max_output_tokens(request, attempts=attempts - done)
    return PlannedRun(
        name=request.name,
        benchmark=request.components.benchmark_id,
        harness=request.components.harness_id,
        environment=request.components.environment_id,
        model=record.model.id,
        tasks=len(tasks),
        attempts=attempts,
        kept=done,
        kept_from=found.kept_from,
        folder=str(Path(request.output.results_dir, folder)),
        images=images,
        images_missing=await _missing(request, images),
        max_output_tokens=tokens,
        max_output_cost_usd=_cost(request, tokens),
        problems=problems[:_PROBLEMS_SHOWN],
        warnings=_warnings(request),
        record=record,
    )


def _images_and_problems(
    request: ResolvedRequest, tasks: Sequence[PlannedTask]
) -> tuple[list[str], list[str]]:
    images: dict[str, None] = {}
    problems = []
    for planned in tasks:
        try:
            image = planned_image(request, planned)
        except CompassError as error:
            problems.append(f"{planned.task.id}: {error}")
            continue
        if image:
            images[image] = None
    return list(images), problems


async def _missing(request: ResolvedRequest, images: list[str]) -> list[str] | None:
    environment = request.components.environment
    if not isinstance(environment, ImageEnvironment) or not request.needs_sessions:
        return None
    return await environment.missing_images(images)


def max_output_tokens(request: ResolvedRequest, *, attempts: int) -> int | None:
    """
    Return the most tokens that models may write; None if neither the calls nor their length are limited.

    Attempts x (1 + retries) x calls of an attempt x output limit of a call x (1 + retries of a call).
    """
    endpoint = request.endpoint
    calls = getattr(request.components.harness, "max_model_calls", None)
    if endpoint is None or calls is None:
        return None
    limits = [endpoint.params[name] for name in _OUTPUT_LIMITS if isinstance(endpoint.params.get(name), int)]
    if not limits:
        return None
    executions = attempts * (1 + request.execution.max_retries)
    return int(executions * calls * min(limits) * (1 + endpoint.max_retries))


def _cost(request: ResolvedRequest, tokens: int | None) -> float | None:
    price = request.endpoint.prices.get("output") if request.endpoint else None
    if tokens is None or price is None:
        return None
    cost = tokens * price / 1e6
    return cost if math.isfinite(cost) else None


def _warnings(request: ResolvedRequest) -> list[str]:
    endpoint = request.endpoint
    if endpoint is not None and endpoint.base_url and endpoint.api_key is None:
        return [f"no model_api_key for {endpoint.base_url}: calls fail if the endpoint asks for one"]
    return []
