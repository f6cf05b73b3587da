"""
The options of a run, each declared once.

The Python functions, the CLI and the nested specification are all built from these models, so that adding
an option is one edit here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, dataclass_transform

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
    model_validator,
)

from .network import PUBLIC, NetworkPolicy
from .validation import explained

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


def _compilable(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return pattern


def _whole_price_list(prices: dict[str, float]) -> dict[str, float]:
    if prices and not {"input", "output"} <= prices.keys() <= {"input", "output", "cached", "cache_write"}:
        raise ValueError('needs "input" and "output", and takes "cached" and "cache_write" besides')
    return prices


def _hidden(key: SecretStr | str | None) -> SecretStr | None:
    return SecretStr(key) if isinstance(key, str) else key


def _as_path(path: Path | str) -> Path:
    return Path(path)


AnyPath = Annotated[Path | str, AfterValidator(_as_path)]
"""A path, whichever way it is written."""


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class _ClearErrors(ModelMetaclass):
    """Makes wrong arguments of a constructor a ``ConfigError`` like everywhere else."""

    if not TYPE_CHECKING:  # type checkers must see the models' own constructors

        def __call__(self, *args, **kwargs):
            try:
                return super().__call__(*args, **kwargs)
            except ValidationError as error:
                raise explained(self, error) from None


class Options(BaseModel, metaclass=_ClearErrors):
    """Base of everything a person writes: frozen, and unknown names are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        protected_namespaces=(),
        arbitrary_types_allowed=True,
    )


class ModelOptions(Options):
    """The endpoint behind the model."""

    model_base_url: str = ""
    """Base URL of the endpoint, e.g. https://host/v1."""
    model_api_key: Annotated[SecretStr | str | None, AfterValidator(_hidden)] = None
    """Key for the endpoint; never written anywhere."""
    model_api_protocol: str | list[str] = "openai-chat"
    """openai-chat, openai-responses, anthropic or scripted, or several in order of preference."""
    model_params: dict[str, Any] = {}
    """Sent with every request, e.g. {"temperature": 0}."""
    model_prices: Annotated[dict[str, NonNegativeFloat], AfterValidator(_whole_price_list)] = {}
    """USD per million tokens: {"input": 3, "output": 15}, and "cached", "cache_write" if they differ."""
    model_max_retries: NonNegativeInt = 4
    """Further tries of one model call after a transient failure."""
    model_idle_timeout_seconds: PositiveFloat = 600.0
    """Longest silence of the endpoint within a call."""
    model_timeout_seconds: PositiveFloat = 1800.0
    """Deadline of one try of a model call."""

    @property
    def key(self) -> SecretStr | None:
        """The key, hidden."""
        return _hidden(self.model_api_key)


class ExecutionOptions(Options):
    """What is run, how often, and what is kept from earlier runs."""

    k: PositiveInt = 1
    """Attempts per task."""
    strategy: Literal["avg", "pass"] = "avg"
    """avg: all k attempts, side by side. pass: one after another, until the first success."""
    seed: int = 0
    """Seed for shuffling and for the agents' own seeds."""
    limit: PositiveInt | None = None
    """Run only the first so many selected tasks."""
    exclude_audit: AnyPath | None = None
    """Leave out the tasks with findings in this audit.json of ``agentcompass audit``, before the limit."""
    task_timeout_seconds: PositiveFloat | None = None
    """Deadline of the agent on one attempt; default: the task's own, else one hour."""
    verifier_timeout_seconds: PositiveFloat | None = None
    """Deadline of verifying one attempt; default: the task's own, else half an hour."""
    open_timeout_seconds: PositiveFloat | None = None
    """Deadline of opening one session; default: the recipe's, else ten minutes."""
    load_timeout_seconds: PositiveFloat = 900.0
    """Deadline of loading the benchmark's tasks."""
    max_retries: NonNegativeInt = 2
    """Additional executions of an attempt after a transient failure."""
    retry_pattern_list: list[Annotated[str, AfterValidator(_compilable)]] | None = None
    """Which failures are transient: error class names or regular expressions over "Class: message"."""
    outage_timeout_seconds: NonNegativeFloat = 1800.0
    """How long to wait for infrastructure that is down before giving up."""
    reuse: bool | Literal["force"] = False
    """Keep finished attempts of an earlier run of the same name; force: even if settings differ."""
    reuse_run_id: str | None = None
    """The run to reuse (implies reuse); default: the latest."""
    run_id: str | None = None
    """Continue this unfinished run in place; a new id starts a run under that id."""
    resume: bool = False
    """Continue the latest run of the same name in place, if there is one."""
    enabled_recipes: list[str] | None = None
    """Ids of the recipes that may apply; default: all."""
    keep_environment: bool = False
    """Leave task and verifier environments in place for debugging."""
    wrap_api_key: bool = False
    """Hand out the key in the session-aware envelope of a compatible gateway."""

    @property
    def looks_back(self) -> bool:
        """Whether anything of an earlier run may be kept."""
        return self.resume or bool(self.reuse) or self.reuse_run_id is not None or self.run_id is not None

    @model_validator(mode="after")
    def _one_way_to_continue(self) -> Self:
        others = [name for name in ("run_id", "reuse", "reuse_run_id") if getattr(self, name)]
        if self.resume and others:
            raise ValueError(f"resume continues the latest run by itself; leave {' and '.join(others)} out")
        return self


class ConcurrencyOptions(Options):
    """The limit that all requests of an orchestration share."""

    task_concurrency: PositiveInt = 16
    """Attempts in flight."""


class RuntimeOptions(Options):
    """How the process runs: limits, deadline, display, extensions."""

    provider_limits: dict[str, PositiveInt] = {}
    """Open sessions per environment provider, process-wide, e.g. {"docker": 8}."""
    env_open_qps: dict[str, NonNegativeFloat] = {}
    """Sessions opened per second and provider; 0 is off. Default: local and docker 0, others 10."""
    timeout_seconds: PositiveFloat | None = None
    """Deadline of the whole evaluation."""
    progress: Literal["auto", "plain", "json", "none"] = "auto"
    """Display: auto is a live view on a terminal or in a notebook, plain lines elsewhere."""
    on_progress: Annotated[Callable[[Any], Any] | None, Field(json_schema_extra={"python_only": True})] = None
    """Called with every progress event; may be async."""
    on_request_finished: Annotated[
        Callable[[Any], Any] | None, Field(json_schema_extra={"python_only": True})
    ] = None
    """Called with the result of every request as it ends; may be async."""
    log_level: Level = "WARNING"
    """Least severe log events shown on standard error."""
    file_log_level: Level = "INFO"
    """Least severe log events kept in run.log."""
    plugins: list[str] = []
    """Modules or .py files that register further components."""
    recipe_dirs: list[AnyPath] = []
    """Trusted folders of recipe packages, for this run only."""
    auto_install_dependencies: bool = False
    """Install missing optional dependencies into this Python environment."""


class OutputOptions(Options):
    """Where files go."""

    results_dir: AnyPath = Path("results")
    """Folder of the run directories."""
    data_dir: AnyPath = Path("data")
    """Cache of downloaded data sets."""


class RunArguments(OutputOptions, RuntimeOptions, ConcurrencyOptions, ExecutionOptions, ModelOptions):
    """The arguments of ``run_evaluation``: one request with everything around it."""

    benchmark: str
    """Benchmark id."""
    harness: str
    """Harness id."""
    model: str = ""
    """Model id, for harnesses that use a model."""
    environment: str = "local"
    """Environment provider id."""
    benchmark_params: dict[str, Any] = {}
    """Parameters of the benchmark; sample_ids, category and shuffle select tasks of any benchmark."""
    harness_params: dict[str, Any] = {}
    """Parameters of the harness."""
    environment_params: dict[str, Any] = {}
    """Parameters of the environment."""
    config: AnyPath | list[AnyPath] = []
    """YAML or JSON files with defaults for these arguments, later ones over earlier ones."""


def _named_policy(value: Any) -> Any:
    if isinstance(value, Mapping) and (unknown := value.keys() - {"mode", "hosts"}):
        raise ValueError(f"has only mode and hosts, not {', '.join(sorted(map(str, unknown)))}")
    return {"mode": value} if isinstance(value, str) else value


def _shortest(policy: NetworkPolicy) -> str | dict[str, Any]:
    return {"mode": policy.mode, "hosts": list(policy.hosts)} if policy.is_list else policy.mode


Policy = Annotated[NetworkPolicy, BeforeValidator(_named_policy), PlainSerializer(_shortest)]
"""Written as ``public``, ``no-network``, or ``{mode: allowlist, hosts: [...]}`` (also ``denylist``)."""


class NetworkParams(Options):
    """What sessions may reach, by phase; part of ``environment_params`` for every environment."""

    network_policy: Policy = PUBLIC
    """``public``, ``no-network``, or a mapping with ``mode`` (``allowlist``, ``denylist``) and ``hosts``."""
    run_network_policy: Policy | None = None
    """What the agent's session may reach; None for ``network_policy``."""
    verifier_network_policy: Policy | None = None
    """What the verifier's session may reach; None for ``network_policy``."""
    network_notice: bool = True
    """Whether the agent's prompt says what its session can reach, where that is restricted."""

    @property
    def run(self) -> NetworkPolicy:
        """What holds while the agent works."""
        return self.run_network_policy or self.network_policy

    @property
    def verifier(self) -> NetworkPolicy:
        """What holds while the verifier works."""
        return self.verifier_network_policy or self.network_policy


class SelectionParams(Options):
    """Which tasks of a benchmark run; part of ``benchmark_params`` for every benchmark."""

    sample_ids: str | list[str] | None = None
    """Only these task ids, in the benchmark's order."""
    category: str | list[str] | None = None
    """Only tasks of these categories."""
    shuffle: bool = False
    """Shuffle with the run's seed before ``limit`` applies."""
