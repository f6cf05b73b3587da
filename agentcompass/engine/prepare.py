"""Everything between a resolved request and its first attempt: tasks, run directory, what is kept."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread

from .. import _version
from ..clock import Clock, utc_text
from ..errors import CompassError, ConfigError
from ..protocols import Environment, ImageEnvironment
from ..records import PlanRecord, RunPaths, RunRecord
from ..spec.options import ExecutionOptions
from ..store.layout import check_run_id, reserve_run_dir, run_paths
from ..store.lock import RunLock, lock_run_dir
from ..store.run import LoadedRun, find_run, load_run, readable_runs
from .datasets import Dataset, Datasets
from .exclusion import excluded_tasks
from .loading import PlannedTask, select_tasks
from .plans import applied_recipes, plan_of
from .resolve import ResolvedRequest
from .resume import (
    Earlier,
    History,
    read_history,
    require_compatible,
    require_same_tasks,
    worth_copying,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """
    What exists from earlier.

    Args:
        resumed: The run directory of an earlier session of the same run.
        earlier: The attempts on disk, of that session or of the run that is reused.
        earlier_plan: What that session meant to cover.
        journal_bytes: How long its journal was when it was read.
        reused: The run that attempts are copied from.
    """

    resumed: Path | None = None
    earlier: Mapping[tuple[str, int], Earlier] = field(default_factory=dict)
    earlier_plan: PlanRecord | None = None
    journal_bytes: int = 0
    reused: LoadedRun | None = None

    @property
    def resumes(self) -> bool:
        """Whether an earlier session of the same run goes on."""
        return self.resumed is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """
    A request that is ready to run.

    Args:
        paths: Of the run directory, which is reserved.
    """

    request: ResolvedRequest
    tasks: list[PlannedTask]
    record: RunRecord
    paths: RunPaths
    background: Background

    @property
    def run_dir(self) -> Path:
        """The run directory."""
        return Path(self.paths.run_dir)

    @property
    def plan(self) -> PlanRecord:
        """What the run is meant to cover."""
        categories = [planned.task.category for planned in self.tasks]
        return PlanRecord(
            task_ids=[planned.task.id for planned in self.tasks],
            categories=categories if any(categories) else [],
            k=self.record.k,
            strategy=self.record.strategy,
            started_at=self.record.started_at,
        )

    @property
    def plan_is_new(self) -> bool:
        """Whether the journal does not say yet what the run is meant to cover."""
        before = self.background.earlier_plan
        return before is None or self.plan != msgspec.structs.replace(
            before, started_at=self.record.started_at
        )


async def prepare(
    request: ResolvedRequest, *, folder: str, datasets: Datasets, clock: Clock
) -> PreparedRequest:
    """
    Load the tasks, decide what is kept from earlier, and reserve the run directory.

    Args:
        folder: Name of the request's folder in the results directory.

    Raises:
        ConfigError: Something is wrong with the input; no attempt has started.
    """
    loaded, found = await load_and_look_back(request, folder, datasets)
    started_at = utc_text(clock.wall())

    def place() -> PreparedRequest:
        record = run_record(request, loaded, started_at)
        background = background_of(found, request, loaded.tasks, record)
        run_dir = _run_dir(request, folder, background)
        return PreparedRequest(
            request=request,
            tasks=loaded.tasks,
            record=msgspec.structs.replace(record, run_id=run_dir.name),
            paths=run_paths(run_dir),
            background=background,
        )

    return await to_thread.run_sync(place)


def lock(prepared: PreparedRequest) -> RunLock:
    """
    Keep everyone else out of the run directory; blocks.

    Raises:
        ConfigError: Somebody is in it, or was between our reading its journal and now.
    """
    held = lock_run_dir(prepared.run_dir)
    background = prepared.background
    if background.resumes:
        now = LoadedRun(prepared.run_dir, prepared.record).journal_bytes()
        if now != background.journal_bytes:
            held.release()
            raise ConfigError(f"run {prepared.run_dir.name!r} has just been continued elsewhere; start again")
    return held


@dataclass(frozen=True, slots=True)
class Loaded:
    """
    The tasks of a request.

    Args:
        tasks: Those that are selected.
        excluded: Ids of those that an audit has excluded.
    """

    tasks: list[PlannedTask]
    dataset: Dataset
    excluded: list[str]


@dataclass(frozen=True, slots=True)
class Past:
    """A run on disk and what its journal says."""

    run: LoadedRun
    history: History


@dataclass(frozen=True, slots=True)
class Found:
    """
    What there is to start from.

    Args:
        own: An earlier session of the same run.
        reused: The run that attempts are copied from.
    """

    own: Past | None = None
    reused: Past | None = None

    @property
    def kept_from(self) -> str:
        """The id of the run that attempts are kept from; empty if there is none."""
        past = self.reused or self.own
        return past.run.run_dir.name if past else ""


async def load_and_look_back(
    request: ResolvedRequest, folder: str, datasets: Datasets
) -> tuple[Loaded, Found]:
    """Load the tasks in a worker process and read what exists in a thread, at the same time."""
    loaded: list[Loaded] = []
    failures: list[CompassError] = []

    async def load(scope: anyio.CancelScope) -> None:
        try:
            loaded.append(await _load(request, datasets))
        except CompassError as error:  # raised below: the task group would wrap it
            failures.append(error)
            scope.cancel()

    found = Found()
    async with anyio.create_task_group() as group:
        group.start_soon(load, group.cancel_scope)
        try:
            if request.execution.looks_back:
                found = await to_thread.run_sync(_look_back, request, folder)
        except CompassError as error:
            failures.append(error)
            group.cancel_scope.cancel()
    if failures:
        raise failures[0]
    return loaded[0], found


async def _load(request: ResolvedRequest, datasets: Datasets) -> Loaded:
    if request.needs_sessions:
        await request.components.environment.check(request.components.networks)
    dataset = await datasets.load(request)
    execution = request.execution
    excluded: list[str] = []
    if execution.exclude_audit is not None:
        path, benchmark_id = Path(execution.exclude_audit), request.benchmark_record.id
        excluded = await to_thread.run_sync(excluded_tasks, path, benchmark_id, dataset.tasks)
    tasks = select_tasks(
        dataset.tasks,
        request.selection,
        seed=execution.seed,
        limit=execution.limit,
        excluded=set(excluded),
    )
    if request.needs_sessions and isinstance(request.components.environment, ImageEnvironment):
        await to_thread.run_sync(_check_images, request, tasks)
    return Loaded(tasks, dataset, excluded)


def _check_images(request: ResolvedRequest, tasks: list[PlannedTask]) -> None:
    """Refuse a request none of whose tasks has an image; that of a single task is the task's own trouble."""
    errors = []
    for planned in tasks:
        try:
            planned_image(request, planned)
        except ConfigError as error:
            errors.append(error)
        except CompassError:
            return  # told when the task runs
        else:
            return
    raise errors[0]


def planned_image(request: ResolvedRequest, planned: PlannedTask) -> str:
    """
    Return the image of a task's sessions; empty if they have none, or one that is built.

    Raises:
        ConfigError: It needs one, and nothing names it.
        RecipeError: The task cannot be planned.
    """
    plan = plan_of(planned.task, request.components, request.execution)
    environment = request.components.environment
    if not request.needs_sessions or not isinstance(environment, ImageEnvironment):
        return ""
    return environment.image_of(plan.image, plan.build)


@cache
def _versions() -> dict[str, str]:
    return {"agentcompass": _version.__version__, "anyio": version("anyio")}


def run_record(request: ResolvedRequest, loaded: Loaded, started_at: str) -> RunRecord:
    """Say everything that a run is, but for its id; blocks."""
    execution = request.execution
    return RunRecord(
        run_id="",
        name=request.title,
        benchmark=request.benchmark_record,
        harness=request.harness_record,
        environment=request.environment_record,
        model=request.model_record,
        recipes=applied_recipes(loaded.dataset.tasks, request.components),
        dataset_hash=loaded.dataset.hash,
        excluded_tasks=loaded.excluded,
        k=execution.k,
        strategy=execution.strategy,
        seed=execution.seed,
        execution=execution.model_dump(mode="json"),
        started_at=started_at,
        environment_facts=_facts(request.components.environment),
        host={"name": platform.node(), "platform": platform.platform(), "python": sys.version.split()[0]},
        versions=_versions(),
    )


def _facts(environment: Environment) -> dict[str, str]:
    """Return what the environment has found out, as the text that the record has to hold."""
    facts: Mapping[object, object] = getattr(environment, "facts", {})
    return {str(name): str(value) for name, value in facts.items()}


def _look_back(request: ResolvedRequest, folder: str) -> Found:
    """Read what an earlier session of the run, or the run to reuse, has on disk; blocks."""
    execution = request.execution
    namespace_dir = Path(request.output.results_dir, folder)
    own = _own(namespace_dir, execution)
    reuses = execution.reuse or execution.reuse_run_id is not None
    if not reuses or (own is not None and own.history.begun):
        return Found(own)
    return Found(own, _reusable(namespace_dir, execution.reuse_run_id))


def _own(namespace_dir: Path, execution: ExecutionOptions) -> Past | None:
    if execution.resume:
        latest = next(readable_runs(namespace_dir), None)
        return None if latest is None else _read(latest)
    if execution.run_id is not None:
        check_run_id(execution.run_id)
        run_dir = namespace_dir / execution.run_id
        if (run_dir / "run.json").exists():
            return _read(load_run(run_dir))
    return None


def _reusable(namespace_dir: Path, run_id: str | None) -> Past | None:
    """Find the run to reuse; the newest one that did more than copying, if none is named."""
    if run_id is not None:
        return _read(find_run(namespace_dir, run_id))
    pasts = (_read(run) for run in readable_runs(namespace_dir))
    return next((past for past in pasts if past.history.begun), None)


def _read(run: LoadedRun) -> Past:
    return Past(run, read_history(run))


def background_of(
    found: Found, request: ResolvedRequest, tasks: list[PlannedTask], record: RunRecord
) -> Background:
    """Decide what is kept, and refuse what does not fit."""
    own, reused = found.own, found.reused
    execution = request.execution
    if own is not None:
        way_out = f"leave {'resume' if execution.resume else 'run_id'} out to start a new run"
        _require_same(own, tasks, record, way_out=way_out)
    if reused is not None and execution.reuse != "force":
        way_out = 'leave reuse out, or set reuse="force" to keep what still fits'
        _require_same(reused, tasks, record, way_out=way_out)
    earlier = own.history.attempts if own else {}
    if reused is not None:
        earlier = worth_copying(reused.history.attempts, tasks, k=record.k)
    return Background(
        resumed=own.run.run_dir if own else None,
        earlier=earlier,
        earlier_plan=own.history.plan if own else None,
        journal_bytes=own.history.journal_bytes if own else 0,
        reused=reused.run if reused else None,
    )


def _require_same(past: Past, tasks: list[PlannedTask], record: RunRecord, *, way_out: str) -> None:
    what = f"run {past.run.run_dir.name!r}"
    require_compatible(past.run.record, record, what=what, way_out=way_out)
    require_same_tasks(tasks, past.history.attempts, what=what, way_out=way_out)


def _run_dir(request: ResolvedRequest, folder: str, background: Background) -> Path:
    results_dir, run_id = Path(request.output.results_dir), request.execution.run_id
    if background.resumed is not None:
        return background.resumed
    if run_id is not None and (results_dir / folder / run_id).is_dir():
        run_dir = results_dir / folder / run_id
        if not (run_dir / "attempts.jsonl").exists():
            return run_dir  # of a session that died before it began
    return reserve_run_dir(results_dir, folder, run_id=run_id)
