"""What ``launch`` takes: an ordered set of named requests, and how flat arguments become one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

from pydantic import (
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    field_validator,
    model_validator,
)

from ..errors import ConfigError
from .located import located, merged
from .matrix import Matrix
from .options import (
    ConcurrencyOptions,
    ExecutionOptions,
    Level,
    ModelOptions,
    Options,
    OutputOptions,
    RunArguments,
    RuntimeOptions,
)
from .requests import with_requests
from .validation import validate


class ComponentSpec(Options):
    """A component by id; every other key is one of its parameters."""

    model_config = ConfigDict(extra="allow")

    id: str
    """Id of the component."""

    @property
    def params(self) -> dict[str, Any]:
        """The component's own parameters, not yet validated."""
        return dict(self.model_extra or {})


class ModelSpec(ModelOptions):
    """The model and its endpoint; keys may be written without their ``model_`` prefix."""

    id: str
    """Id of the model, as the endpoint knows it."""

    @model_validator(mode="before")
    @classmethod
    def _add_prefix(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        return {
            f"model_{key}" if f"model_{key}" in cls.model_fields else key: value
            for key, value in values.items()
        }


class RequestRuntimeOptions(Options):
    """How one request runs among the others."""

    task_concurrency: PositiveInt | None = None
    """Most attempts of this request in flight; default: as many as the orchestration permits."""
    weight: PositiveFloat | None = None
    """Share of the free slots among requests with a weight, which run side by side; default: in order."""
    timeout_seconds: PositiveFloat | None = None
    """Deadline of this request, from the moment when its first attempt may start."""
    log_level: Level | None = None
    """Least severe log events shown on standard error; default: as for the whole."""
    file_log_level: Level | None = None
    """Least severe log events kept in run.log; default: as for the whole."""


class RunRequestSpec(Options):
    """One benchmark x harness x environment x model with its options."""

    name: str = Field(min_length=1)
    """Unique in its orchestration; names the request's folder."""
    benchmark: ComponentSpec
    """``{"id": ..., <parameters>}``."""
    harness: ComponentSpec
    """``{"id": ..., <parameters>}``."""
    environment: ComponentSpec = ComponentSpec(id="local")
    """``{"id": ..., <parameters>}``."""
    model: ModelSpec | None = None
    """``{"id": ..., "base_url": ..., "api_key": ..., ...}``; None for harnesses that use no model."""
    execution: ExecutionOptions = ExecutionOptions()
    """What is run, how often, and what is reused."""
    runtime: RequestRuntimeOptions = RequestRuntimeOptions()
    """How it runs among the others."""
    output: OutputOptions = OutputOptions()
    """Where files go."""

    @field_validator("benchmark", "harness", "environment", "model", mode="before")
    @classmethod
    def _id_alone(cls, value: object) -> object:
        return {"id": value} if isinstance(value, str) else value


class OrchestrationSpec(ConcurrencyOptions):
    """An ordered set of named requests that share one task limit and one deadline."""

    name: str = ""
    """For people; names the file that tells what became of the whole."""
    defaults: dict[str, Any] = Field(default={}, repr=False)
    """Sections of a request that lie under each one; parameters hold for the same component id only."""
    requests: list[RunRequestSpec] = Field(default=[], min_length=1, validate_default=True)
    """Fed in this order."""
    matrix: Matrix | None = None
    """Further requests: every combination of benchmarks, harnesses, models and environments."""
    runtime: RuntimeOptions = RuntimeOptions()
    """Limits, deadline, display and extensions."""
    _written: Mapping[Any, Any] = PrivateAttr(default_factory=dict)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """
        Build a specification from what a file holds.

        Raises:
            ConfigError: Lists every finding with file, line, path, value and what is allowed.
        """
        whole = document
        try:
            whole = with_requests(document)
            spec = validate(cls, whole)
        except ConfigError as error:
            raise ConfigError("\n".join(dict.fromkeys(located(error, whole)))) from None
        spec._written = whole  # noqa: SLF001  # it is our own
        return spec

    @classmethod
    def configured(
        cls,
        document: Mapping[str, Any] | OrchestrationSpec,
        below: Mapping[str, Any],
        *,
        above: Mapping[str, Any] | None = None,
    ) -> Self:
        """
        Build a specification with what configuration files hold underneath, and something on top.

        Args:
            below: In the shape of a document, with ``defaults`` but without requests.
            above: Likewise; its defaults lie over those of the document, not over its requests.

        Raises:
            ConfigError: Lists every finding.
        """
        own = document.model_dump(exclude_unset=True) if isinstance(document, OrchestrationSpec) else document
        return cls.from_document(merged(merged(below, own), above or {}))

    def locate(self, error: ConfigError, *prefix: str | int) -> list[str]:
        """Say each finding of an error about what is at ``prefix``, with its place if a file has it."""
        return located(error, self._written, prefix=prefix)

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, values: object) -> object:
        return with_requests(values) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        counts = Counter(request.name for request in self.requests)
        twice = sorted(name for name, count in counts.items() if count > 1)
        if twice:
            raise ValueError(f"request names must be unique; used more than once: {', '.join(twice)}")
        return self


RUN_NAME = "run"
"""Name of the only request of a ``run_evaluation``; its folder is named after its components instead."""


def as_orchestration(arguments: RunArguments) -> OrchestrationSpec:
    """Turn the flat arguments of ``run_evaluation`` into an orchestration of one request."""
    request = RunRequestSpec(
        name=RUN_NAME,
        benchmark=_component("benchmark", arguments.benchmark, arguments.benchmark_params),
        harness=_component("harness", arguments.harness, arguments.harness_params),
        environment=_component("environment", arguments.environment, arguments.environment_params),
        model=ModelSpec(id=arguments.model, **_part(arguments, ModelOptions)) if arguments.model else None,
        execution=ExecutionOptions(**_part(arguments, ExecutionOptions)),
        output=OutputOptions(**_part(arguments, OutputOptions)),
    )
    return OrchestrationSpec(
        requests=[request],
        runtime=RuntimeOptions(**_part(arguments, RuntimeOptions)),
        task_concurrency=arguments.task_concurrency,
    )


def _component(field: str, component_id: str, params: Mapping[str, Any]) -> ComponentSpec:
    if "id" in params:
        raise ConfigError(f"{field}_params.id: name the component with {field}={params['id']!r} instead")
    return ComponentSpec(id=component_id, **params)


def _part(arguments: RunArguments, options: type[Options]) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in options.model_fields}
