"""Turn a request as written into constructed components, refusing what cannot work before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import BaseModel

from ..errors import ConfigError, UnknownComponentError
from ..llm.client import PROTOCOL_IDS
from ..llm.endpoint import Endpoint
from ..protocols import Benchmark, Grader, Recipe, SalvagingHarness, Verifier
from ..records import ComponentRecord, ModelRecord
from ..spec.options import ExecutionOptions, OutputOptions, RuntimeOptions, SelectionParams
from ..spec.orchestration import RUN_NAME, ComponentSpec, ModelSpec, RunRequestSpec
from ..spec.validation import validate
from .job import Components
from .registry import Component, Kind, all_components, find_component

_NETWORK_PARAMS = ("network_policy", "run_network_policy", "verifier_network_policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """A request whose components exist and accept their parameters."""

    name: str
    benchmark: Benchmark
    components: Components
    selection: SelectionParams
    endpoint: Endpoint | None
    execution: ExecutionOptions
    output: OutputOptions
    benchmark_record: ComponentRecord
    harness_record: ComponentRecord
    environment_record: ComponentRecord
    model_record: ModelRecord
    recipe_ids: tuple[str, ...]

    @property
    def needs_sessions(self) -> bool:
        """Whether any session will be opened at all."""
        return self.components.needs_session or self.components.verifier_place != "none"

    @property
    def title(self) -> str:
        """What people call it: its name, or for a single run its components."""
        if self.name != RUN_NAME:
            return self.name
        return " x ".join(part for part in (*self.namespace_parts[1:], self.model_record.id) if part)

    @property
    def namespace_parts(self) -> tuple[str, str, str, str]:
        """What names the folder of a single run."""
        parts = self.components
        return (self.model_record.id or "none", parts.benchmark_id, parts.harness_id, parts.environment_id)


def resolve(request: RunRequestSpec) -> ResolvedRequest:
    """
    Find and construct a request's components.

    Raises:
        ConfigError: A component or parameter does not exist, or the combination cannot work.
    """
    _refuse_unsupported(request)
    selection, own_params = _split_selection(request.benchmark.params)
    benchmark, benchmark_record = _build("benchmark", ComponentSpec(id=request.benchmark.id, **own_params))
    harness, harness_record = _build("harness", request.harness)
    environment, environment_record = _build("environment", request.environment)
    needs_model = bool(getattr(harness, "needs_model", False))
    endpoint = _endpoint(request.model) if request.model and needs_model else None
    if needs_model and endpoint is None:
        raise ConfigError(f"model: harness {request.harness.id!r} needs a model; name one")
    judge = _judge(request.benchmark.id, benchmark)
    recipes = _recipes()
    return ResolvedRequest(
        name=request.name,
        benchmark=benchmark,
        components=Components(
            benchmark_id=request.benchmark.id,
            harness_id=request.harness.id,
            environment_id=_CANONICAL.get(request.environment.id, request.environment.id),
            harness=harness,
            environment=environment,
            needs_session=bool(getattr(harness, "needs_session", False)),
            needs_model=needs_model,
            sees_reference=bool(getattr(harness, "sees_reference", False)),
            salvaging=harness if isinstance(harness, SalvagingHarness) else None,
            grader=judge if isinstance(judge, Grader) else None,
            verifier=None if isinstance(judge, Grader) else judge,
            verifier_place="none" if isinstance(judge, Grader) else judge.environment,
            recipes=tuple(recipes.values()),
        ),
        selection=selection,
        endpoint=endpoint,
        execution=request.execution,
        output=request.output,
        benchmark_record=benchmark_record,
        harness_record=harness_record,
        environment_record=environment_record,
        model_record=_model_record(request.model, endpoint),
        recipe_ids=tuple(recipes),
    )


_CANONICAL = {"host_process": "local"}


def refuse_unsupported(runtime: RuntimeOptions) -> None:
    """
    Refuse what the options can say but this version cannot do.

    Raises:
        ConfigError: Names the option.
    """
    for option in ("recipe_dirs", "auto_install_dependencies"):
        if getattr(runtime, option):
            raise ConfigError(f"{option}: not available in this version; leave it out")


def _refuse_unsupported(request: RunRequestSpec) -> None:
    if request.execution.wrap_api_key:
        raise ConfigError("wrap_api_key: not available in this version; leave it out")
    for name in _NETWORK_PARAMS:
        if request.environment.params.get(name, "public") != "public":
            raise ConfigError(
                f"environment_params.{name}: environment {request.environment.id!r} cannot enforce a "
                "network policy in this version; leave it out"
            )


def _split_selection(params: Mapping[str, Any]) -> tuple[SelectionParams, dict[str, Any]]:
    mine = {name: params[name] for name in SelectionParams.model_fields if name in params}
    rest = {name: value for name, value in params.items() if name not in mine}
    return validate(SelectionParams, mine, what="benchmark_params"), rest


def _build(kind: Kind, spec: ComponentSpec) -> tuple[Any, ComponentRecord]:
    component = find_component(kind, spec.id)
    params = {name: value for name, value in spec.params.items() if name not in _NETWORK_PARAMS}
    built, validated = component.build(params)
    return built, _component_record(component, validated)


def _component_record(component: Component, params: BaseModel) -> ComponentRecord:
    return ComponentRecord(
        id=component.id,
        source=component.source,
        version=component.version,
        params=params.model_dump(mode="json"),
    )


def _judge(benchmark_id: str, benchmark: Benchmark) -> Grader | Verifier:
    try:
        judge: object = benchmark.verifier()  # components are not always typed
    except Exception as error:  # like a constructor that raises
        raise ConfigError(
            f"benchmark {benchmark_id!r}: verifier() raised {type(error).__name__}: {error}"
        ) from error
    if isinstance(judge, Grader | Verifier):
        return judge
    raise ConfigError(
        f"benchmark {benchmark_id!r}: verifier() returned a {type(judge).__name__}; it needs a method "
        "grade(task, outcome), or verify(task, outcome, session) and the attribute environment"
    )


def _recipes() -> dict[str, Recipe]:
    built = [(component.id, component.build({})[0]) for component in all_components("recipe")]
    return dict(sorted(built, key=lambda pair: (pair[1].priority, pair[0])))


def _protocol(preferred: str | list[str]) -> str:
    """Return the first protocol that we speak."""
    names = [preferred] if isinstance(preferred, str) else preferred
    for name in names:
        if name in PROTOCOL_IDS:
            return name
    raise UnknownComponentError("model_api_protocol", ", ".join(names), PROTOCOL_IDS)


def _endpoint(model: ModelSpec) -> Endpoint:
    protocol = _protocol(model.model_api_protocol)
    if not model.model_base_url and protocol != "scripted":
        raise ConfigError(
            f"model_base_url: is required to reach {model.id!r} by {protocol}, e.g. https://host/v1 "
            "(on the command line also MODEL_BASE_URL)"
        )
    return Endpoint(
        model_id=model.id,
        protocol=protocol,
        base_url=model.model_base_url,
        api_key=model.key,
        params=model.model_params,
        max_retries=model.model_max_retries,
        idle_timeout_seconds=model.model_idle_timeout_seconds,
        total_timeout_seconds=model.model_timeout_seconds,
    )


def _model_record(model: ModelSpec | None, endpoint: Endpoint | None) -> ModelRecord:
    if model is None:
        return ModelRecord(id="")
    params = msgspec.json.decode(msgspec.json.encode(model.model_params, enc_hook=_name_of))
    protocol = endpoint.protocol if endpoint else ""
    return ModelRecord(id=model.id, protocol=protocol, base_url=model.model_base_url, params=params)


def _name_of(value: object) -> str:
    """Name a callable in the parameters without its address, so that a resumed run finds it equal."""
    return getattr(value, "__qualname__", None) or type(value).__qualname__
