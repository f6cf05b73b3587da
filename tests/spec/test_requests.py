"""Defaults, requests and a matrix become whole requests, and mistakes keep the place where they were made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcompass.errors import ConfigError
from agentcompass.spec.documents import read_document
from agentcompass.spec.orchestration import ModelSpec, OrchestrationSpec, RunRequestSpec
from agentcompass.spec.validation import validate


def spec_of(folder: Path, text: str) -> OrchestrationSpec:
    (folder / "s.yaml").write_text(text, "utf-8")
    return OrchestrationSpec.from_document(read_document(folder / "s.yaml", environ={}))


def request(name: str, **sections: Any) -> Any:
    return {"name": name, "benchmark": "b", "harness": "h", **sections}


def test_request_lies_over_the_defaults() -> None:
    """Mappings merge and what the request says wins."""
    spec = OrchestrationSpec(
        defaults={"execution": {"k": 3, "limit": 5}, "model": {"base_url": "u"}, "environment": "docker"},
        requests=[request("one", execution={"limit": 2}, model="m"), request("two")],
    )
    one, two = spec.requests
    assert (one.execution.k, one.execution.limit, two.execution.limit) == (3, 2, 5)
    assert one.model is not None
    assert (one.model.id, one.model.model_base_url) == ("m", "u")
    assert two.model is None
    assert {one.environment.id, two.environment.id} == {"docker"}


def test_parameters_of_a_default_hold_for_its_id_only() -> None:
    """A request that names another component gets none of the default's parameters."""
    spec = OrchestrationSpec(
        defaults={"environment": {"id": "docker", "image": "x"}, "harness": {"id": "h", "steps": 1}},
        requests=[
            request("one", environment="local"),
            request("two", environment={"id": "docker", "cpus": 2}),
        ],
    )
    one, two = spec.requests
    assert one.environment.params == {}
    assert two.environment.params == {"image": "x", "cpus": 2}
    assert one.harness.params == {"steps": 1}


def test_requests_built_in_python_are_laid_over_defaults_too() -> None:
    """Only what was given counts; what a model option is called does not matter; keys stay hidden."""
    built = RunRequestSpec(
        name="one",
        benchmark="b",  # type: ignore[arg-type]
        harness="h",  # type: ignore[arg-type]
        model=ModelSpec(id="m", model_api_key="sk-canary"),
    )
    spec = OrchestrationSpec(
        defaults={"model": {"base_url": "u", "params": {"temperature": 0}}, "execution": {"k": 2}},
        requests=[built],
    )
    [one] = spec.requests
    assert one.model is not None
    assert (one.model.model_base_url, one.execution.k) == ("u", 2)
    assert one.model.key is not None
    assert one.model.key.get_secret_value() == "sk-canary"
    assert "sk-canary" not in repr(spec)


def test_defaults_with_a_key_are_not_shown() -> None:
    """A key in the defaults shows neither in the specification nor in an error about it."""
    values = {"defaults": {"model": {"id": "m", "api_key": "sk-canary"}}, "requests": [request("one")]}
    assert "sk-canary" not in repr(validate(OrchestrationSpec, values))
    with pytest.raises(ConfigError) as caught:
        validate(OrchestrationSpec, {**values, "requests": [request("one"), request("one")]})
    assert "sk-canary" not in str(caught.value)


def test_matrix_makes_a_request_of_each_combination() -> None:
    """Names are made of what differs; excluded combinations are left out, included requests are added."""
    spec = OrchestrationSpec(
        matrix={  # type: ignore[arg-type]
            "benchmarks": ["b1", "b2"],
            "harnesses": ["h"],
            "models": {"hot": {"id": "m", "params": {"temperature": 1}}, "cold": {"id": "m"}},
            "exclude": [{"benchmark": "b2", "model": ["hot"]}],
            "include": [request("extra")],
        },
        defaults={"execution": {"k": 2}},
    )
    assert [one.name for one in spec.requests] == ["b1-hot", "b1-cold", "b2-cold", "extra"]
    assert {one.execution.k for one in spec.requests} == {2}
    assert spec.requests[0].model is not None
    assert spec.requests[0].model.model_params == {"temperature": 1}


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ({"benchmarks": ["b", "b"]}, "matrix.benchmarks.1: 'b' is there twice"),
        ({"benchmarks": [{"path": "x"}]}, "matrix.benchmarks.0: needs an id"),
        ({"benchmarks": ["b"], "exclude": [{"model": "m"}]}, "matrix.exclude.0.model: no such axis"),
        ({"models": ["mm"], "exclude": [{"model": "mx"}]}, "no such label 'mx'; did you mean 'mm'"),
        ({"benchmark": ["b"]}, "matrix.benchmark: no such option; did you mean 'benchmarks'"),
        ({}, "matrix: makes no request"),
    ],
)
def test_wrong_matrix_is_named(matrix: dict[str, Any], message: str) -> None:
    """Each mistake says where it is and what there is."""
    with pytest.raises(ConfigError) as caught:
        validate(OrchestrationSpec, {"matrix": matrix})
    assert message in str(caught.value)


def test_all_mistakes_of_a_file_come_at_once_with_their_lines(tmp_path: Path) -> None:
    """Also those of defaults, once and where they were written, and of the matrix."""
    text = """
defaults:
  execution: {k: 0}
requests:
  - {name: a, benchmark: b, harness: h}
  - name: b
    benchmark: b
    harnes: h
matrix:
  benchmarks: [b1, b2]
  harnesses: [h]
runtime:
  progress: loud
"""
    with pytest.raises(ConfigError) as caught:
        spec_of(tmp_path, text)
    lines = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
    assert lines == [
        "s.yaml:3: defaults.execution.k: input should be greater than 0, got 0",
        "s.yaml:6: requests.1.harness: is required",
        "s.yaml:8: requests.1.harnes: no such option; did you mean 'harness'?",
        "s.yaml:13: runtime.progress: input should be 'auto', 'plain', 'json' or 'none', got 'loud'",
    ]


def test_mistake_in_an_axis_is_named_where_it_stands(tmp_path: Path) -> None:
    """A request of a matrix has no place of its own; its sections have."""
    text = "matrix:\n  benchmarks: [b]\n  harnesses: [h]\n  models:\n    - {id: m,\n       base_ur: x}\n"
    with pytest.raises(ConfigError, match=r"s.yaml:6: matrix.models.0.base_ur: no such option; did you mean"):
        spec_of(tmp_path, text)


def test_unknown_section_of_the_defaults_is_named(tmp_path: Path) -> None:
    """Defaults have the sections of a request."""
    with pytest.raises(ConfigError, match=r"s.yaml:1: defaults.task_concurrency: no such section"):
        spec_of(
            tmp_path, "defaults: {task_concurrency: 3}\nrequests: [{name: a, benchmark: b, harness: h}]\n"
        )


def test_nothing_to_run_is_a_mistake() -> None:
    """Neither requests nor a matrix is an error, not an empty success."""
    with pytest.raises(ConfigError, match="requests: list should have at least 1 item"):
        validate(OrchestrationSpec, {"name": "x", "requests": []})
    with pytest.raises(ConfigError, match="requests: list should have at least 1 item"):
        validate(OrchestrationSpec, {"name": "x"})
