"""What a person writes becomes options, or one clear error that lists every finding."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from agentcompass.errors import ConfigError
from agentcompass.spec.options import RunArguments
from agentcompass.spec.orchestration import OrchestrationSpec, as_orchestration
from agentcompass.spec.validation import validate

MINIMAL = {"benchmark": "humaneval", "harness": "oracle"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task_concurency": 3}, "task_concurency: no such option; did you mean 'task_concurrency'?"),
        ({"k": 0}, "k: input should be greater than 0, got 0"),
        ({"strategy": "avgs"}, "strategy: input should be 'avg' or 'pass', got 'avgs'; did you mean 'avg'?"),
        ({"log_level": "LOUD"}, "log_level: input should be 'DEBUG', 'INFO'"),
        ({"retry_pattern_list": ["("]}, "retry_pattern_list.0: not a regular expression"),
        ({"provider_limits": {"docker": 0}}, "provider_limits.docker: input should be greater than 0"),
        ({"timeout_seconds": -1}, "timeout_seconds: input should be greater than 0, got -1"),
        ({"model_params": 3}, "model_params: input should be a valid dictionary, got 3"),
    ],
)
def test_wrong_input_names_field_value_and_way_out(values: dict[str, Any], message: str) -> None:
    """Each mistake is named with what was given and what is near or allowed."""
    with pytest.raises(ConfigError) as caught:
        validate(RunArguments, {**MINIMAL, **values})
    assert message in str(caught.value)


def test_all_findings_come_at_once() -> None:
    """Nobody fixes mistakes one run at a time."""
    with pytest.raises(ConfigError, match=r"k: .*; benchmark: is required"):
        validate(RunArguments, {"harness": "oracle", "k": "x"})


def test_wrong_key_is_not_shown() -> None:
    """A key of the wrong type does not end up in the message."""
    with pytest.raises(ConfigError) as caught:
        validate(RunArguments, {**MINIMAL, "model_api_key": ["sk-canary"]})
    assert "sk-canary" not in str(caught.value)


def test_key_is_not_in_the_repr() -> None:
    """Printing the arguments shows no key."""
    arguments = validate(RunArguments, {**MINIMAL, "model_api_key": "sk-canary"})
    assert "sk-canary" not in repr(arguments)


def test_flat_arguments_become_one_request() -> None:
    """Every option of ``run_evaluation`` reaches the specification."""
    values = {
        **MINIMAL,
        "model": "m",
        "model_base_url": "http://x/v1",
        "model_api_key": "secret-key",
        "benchmark_params": {"sample_ids": ["a"]},
        "k": 3,
        "task_concurrency": 5,
        "timeout_seconds": 9,
        "results_dir": "out",
    }
    spec = as_orchestration(validate(RunArguments, values))
    [request] = spec.requests
    assert request.benchmark.params == {"sample_ids": ["a"]}
    assert request.model is not None
    assert request.model.model_api_key == SecretStr("secret-key")
    assert (request.execution.k, spec.task_concurrency, spec.runtime.timeout_seconds) == (3, 5, 9)
    assert str(request.output.results_dir) == "out"


def test_every_flat_argument_has_a_place_in_the_specification() -> None:
    """Adding an option is one edit: nothing in the flat list is missing from the nested one."""
    own = {"benchmark", "harness", "environment", "model", "config"}
    own |= {"benchmark_params", "harness_params", "environment_params"}
    nested = set(OrchestrationSpec.model_fields) | {
        name
        for part in ("runtime",)
        for name in OrchestrationSpec.model_fields[part].annotation.model_fields  # type: ignore[union-attr]
    }
    request = as_orchestration(validate(RunArguments, {**MINIMAL, "model": "m"})).requests[0]
    assert request.model is not None
    parts: list[BaseModel] = [request.execution, request.output, request.model]
    for part in parts:
        nested |= set(type(part).model_fields)
    assert set(RunArguments.model_fields) - own <= nested


def test_model_keys_need_no_prefix() -> None:
    """In a specification the model's options may be written as on the page: base_url, api_key."""
    spec = validate(
        OrchestrationSpec,
        {
            "requests": [
                {
                    "name": "one",
                    "benchmark": {"id": "b", "x": 1},
                    "harness": "h",
                    "model": {
                        "id": "m",
                        "base_url": "u",
                        "api_key": "k-123456",
                        "api_protocol": "openai-chat",
                    },
                }
            ]
        },
    )
    [request] = spec.requests
    assert request.benchmark.params == {"x": 1}
    assert request.model is not None
    assert request.model.model_base_url == "u"


def test_request_names_must_be_unique() -> None:
    """Two requests of one name would share a folder."""
    request = {"name": "same", "benchmark": "b", "harness": "h"}
    with pytest.raises(ConfigError, match="used more than once: same"):
        validate(OrchestrationSpec, {"requests": [request, request]})


def test_constructor_raises_the_same_error() -> None:
    """A specification that is built in Python is checked with the same words."""
    with pytest.raises(ConfigError, match=r"requests.0.benchmark: is required"):
        OrchestrationSpec(requests=[{"name": "a", "harness": "h"}])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"task_concurency: no such option; did you mean"):
        OrchestrationSpec(requests=[], task_concurency=4)  # type: ignore[call-arg]


def test_component_id_among_its_parameters_is_refused() -> None:
    """``benchmark_params={"id": ...}`` is a mistake, not another way to name the benchmark."""
    arguments = validate(RunArguments, {**MINIMAL, "benchmark_params": {"id": "x"}})
    with pytest.raises(ConfigError, match=r"benchmark_params.id"):
        as_orchestration(arguments)
