"""Turn a request as written into constructed components, refusing what cannot work before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from pydantic import BaseModel

from ..errors import ConfigError, UnknownComponentError
from ..llm.client import PROTOCOL_IDS
from ..llm.endpoint import Endpoint
from ..protocols import Benchmark, Examiner, Grader, SalvagingHarness, Verifier, WorkspaceBenchmark
from ..records import ComponentRecord, ModelRecord
from ..spec.options import ExecutionOptions, NetworkParams, OutputOptions, RuntimeOptions, SelectionParams
from ..spec.orchestration import RUN_NAME, ComponentSpec, ModelSpec, RequestRuntimeOptions, RunRequestSpec
from ..spec.validation import validate
from .job import Components
from .network import phase_networks
from .recipes import find_recipes
from .registry import BrokenComponentError, Component, Kind, find_component

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """A request whose components exist and accept their parameters."""

    name: str
    benchmark: Benchmark
    components: Components
    selection: SelectionParams
    endpoint: Endpoint | None
    execution: ExecutionOptions
    runtime: RequestRuntimeOptions
    output: OutputOptions
    benchmark_record: ComponentRecord
    harness_record: ComponentRecord
    environment_record: ComponentRecord
    model_record: ModelRecord

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


@dataclass(frozen=True, slots=True)
class BrokenRequest:
    """A request that cannot run, and why; the others do."""

    name: str
    error: ConfigError


def resolve(request: RunRequestSpec, runtime: RuntimeOptions) -> ResolvedRequest:
    """
    Find and construct a request's components.

    Raises:
        ConfigError: A component or parameter does not exist, or the combination cannot work.
        BrokenComponentError: A constructor raised.
    """
    _refuse_unsupported(request)
    selection, own_params = _split(SelectionParams, request.benchmark, what="benchmark_params")
    benchmark, benchmark_record = _build("benchmark", own_params)
    harness, harness_record = _build("harness", request.harness)
    network, own_params = _split(NetworkParams, request.environment, what="environment_params")
    environment, environment_record = _build("environment", own_params)
    environment_record.params.update(network.model_dump(mode="json", exclude_defaults=True))
    needs_model = bool(getattr(harness, "needs_model", False))
    endpoint = _endpoint(request.model) if request.model and needs_model else None
    if needs_model and endpoint is None:
        raise ConfigError(f"model: harness {request.harness.id!r} needs a model; name one")
    _check_prices(harness, endpoint)
    judge = _judge(request.benchmark.id, benchmark)
    examiner = judge if isinstance(judge, Examiner) else None
    verifier_place = examiner.environment if examiner else _place(judge)
    _check_network(network, verifier_place)
    recipes = find_recipes(
        [Path(folder) for folder in runtime.recipe_dirs], enabled=request.execution.enabled_recipes
    )
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
            workspace=benchmark if isinstance(benchmark, WorkspaceBenchmark) else None,
            grader=judge if isinstance(judge, Grader) else None,
            examiner=examiner,
            verifier=None if isinstance(judge, Grader) else judge,
            verifier_place=verifier_place,
            network=phase_networks(
                network, endpoint if getattr(harness, "model_in_session", False) else None
            ),
            recipes=recipes,
        ),
        selection=selection,
        endpoint=endpoint,
        execution=request.execution,
        runtime=request.runtime,
        output=request.output,
        benchmark_record=benchmark_record,
        harness_record=harness_record,
        environment_record=environment_record,
        model_record=_model_record(request.model, endpoint),
    )


_CANONICAL = {"host_process": "local"}


def _refuse_unsupported(request: RunRequestSpec) -> None:
    if request.execution.wrap_api_key:
        raise ConfigError("wrap_api_key: not available in this version; leave it out")


def _split(model: type[ModelT], spec: ComponentSpec, *, what: str) -> tuple[ModelT, ComponentSpec]:
    """Take the engine's own parameters out of a component's."""
    mine = {name: spec.params[name] for name in model.model_fields if name in spec.params}
    rest = {name: value for name, value in spec.params.items() if name not in mine}
    return validate(model, mine, what=what), ComponentSpec(id=spec.id, **rest)


def _check_network(network: NetworkParams, verifier_place: str) -> None:
    if verifier_place == "reuse" and network.run != network.verifier:
        raise ConfigError(
            f"environment_params.verifier_network_policy: the verifier works in the agent's session, so it "
            f"cannot have {network.verifier} while the agent has {network.run}; give both the same policy"
        )


def _check_prices(harness: object, endpoint: Endpoint | None) -> None:
    if endpoint is not None and getattr(harness, "needs_prices", False) and not endpoint.prices:
        raise ConfigError(
            f"harness_params: a cost limit needs the prices of {endpoint.model_id!r}; set model_prices, e.g. "
            '{"input": 3, "output": 15} in USD per million tokens, or leave the limit out'
        )


def _build(kind: Kind, spec: ComponentSpec) -> tuple[Any, ComponentRecord]:
    component = find_component(kind, spec.id)
    built, validated = component.build(spec.params)
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
        raise BrokenComponentError(
            f"benchmark {benchmark_id!r}: verifier() raised {type(error).__name__}: {error}"
        ) from error
    if isinstance(judge, Grader | Verifier):
        return judge
    raise ConfigError(
        f"benchmark {benchmark_id!r}: verifier() returned a {type(judge).__name__}; it needs a method "
        "grade(task, outcome), or verify(task, outcome, session) and the attribute environment"
    )


def _place(judge: Grader | Verifier) -> Literal["none", "reuse", "fresh"]:
    return "none" if isinstance(judge, Grader) else judge.environment


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
        prices=model.model_prices,
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
