"""The options of ``run``: made from the model of the arguments, passed on only if given."""

from __future__ import annotations

from typing import Any

import click
import pytest

from agentcompass.cli.options import given_values, resume_command, with_option_names
from agentcompass.cli.run import command
from agentcompass.spec.options import RunArguments

from .console import call


def context(*arguments: str) -> click.Context:
    """Parse a command line."""
    return command.make_context("run", list(arguments))


def given(*arguments: str) -> dict[str, Any]:
    """Return what a command line passes on."""
    return given_values(context(*arguments))


PYTHON_ONLY = {"on_progress", "on_request_finished"}


@pytest.fixture(autouse=True)
def without_endpoint_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own endpoint must not get into the tests."""
    for name in ("MODEL_NAME", "MODEL_BASE_URL", "MODEL_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_every_field_is_a_parameter_except_python_only_ones() -> None:
    """Adding an option is one edit, in the model."""
    names = {parameter.name for parameter in command.params}
    assert names == (RunArguments.model_fields.keys() | {"dry_run", "as_json"}) - PYTHON_ONLY


def test_only_what_was_given_is_passed_on() -> None:
    """Defaults stay out, so that those of a configuration file hold."""
    assert given("fake", "oracle") == {"benchmark": "fake", "harness": "oracle"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-k", "3"], {"k": "3"}),
        (["--k", "3"], {"k": "3"}),
        (["-b", "tasks=2", "-b", "x.y=z"], {"benchmark_params": {"tasks": 2, "x": {"y": "z"}}}),
        (["-H", "a=1"], {"harness_params": {"a": 1}}),
        (["-e", "a=1"], {"environment_params": {"a": 1}}),
        (["-m", '{"temperature": 0}'], {"model_params": {"temperature": 0}}),
        (["--provider-limit", "docker=8"], {"provider_limits": {"docker": 8}}),
        (["--env-open-qps", "x=2"], {"env_open_qps": {"x": 2}}),
        (["--plugin", "a", "--plugin", "b.py"], {"plugins": ["a", "b.py"]}),
        (["--recipe-dir", "r"], {"recipe_dirs": ["r"]}),
        (["--retry-pattern", "A=b"], {"retry_pattern_list": ["A=b"]}),
        (["--model-api-protocol", "x", "--model-api-protocol", "y"], {"model_api_protocol": ["x", "y"]}),
        (["--keep-environment"], {"keep_environment": True}),
        (["--no-keep-environment"], {"keep_environment": False}),
        (["--reuse"], {"reuse": "true"}),
        (["--reuse=force"], {"reuse": "force"}),
        (["--reuse=false"], {"reuse": "false"}),
        (["--seed", "-5"], {"seed": "-5"}),
    ],
)
def test_options_become_arguments(words: list[str], expected: dict[str, Any]) -> None:
    """Each shape of field has its form on the command line, and the model accepts what comes of it."""
    values = given(*words, "fake", "oracle")  # options in front: none may swallow the benchmark
    assert values == {"benchmark": "fake", "harness": "oracle", **expected}
    RunArguments.model_validate(values)


def test_environment_variables_name_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Model, URL and key may come from the environment; what is typed wins."""
    monkeypatch.setenv("MODEL_NAME", "from-env")
    monkeypatch.setenv("MODEL_BASE_URL", "http://env")
    monkeypatch.setenv("MODEL_API_KEY", "sk-from-env")
    expected = {"model": "from-env", "model_base_url": "http://typed", "model_api_key": "sk-from-env"}
    assert given("fake", "oracle", "--model-base-url", "http://typed").items() >= expected.items()


def test_help_describes_every_option_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The help shows descriptions and defaults, and never a secret."""
    monkeypatch.setenv("MODEL_API_KEY", "sk-very-secret")
    result = call("run", "--help")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "--task-concurrency N Attempts in flight. [default: 16]" in text
    assert "--reuse [=force]" in text
    assert "--[no-]keep-environment" in text
    assert "KEY=VALUE is split at the first '='" in text
    assert "sk-very-secret" not in text


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("k: input should be greater than 0, got '0'", "--k: input should be greater than 0, got '0'"),
        ("benchmark_params.tasks: wrong; seed: wrong", "--benchmark-param tasks: wrong; --seed: wrong"),
        ("retry_pattern_list.0: wrong", "--retry-pattern: wrong"),
        ("model: harness 'chat' needs a model", "MODEL: harness 'chat' needs a model"),
        ("leave run_id out", "leave --run-id out"),
        ("benchmark_params.x: got 'run_id'", "--benchmark-param x: got 'run_id'"),
        ("unknown harness 'model'", "unknown harness 'model'"),
    ],
)
def test_messages_name_the_options(message: str, expected: str) -> None:
    """A finding about a field is shown as one about what was typed."""
    assert with_option_names(message) == expected


def test_resume_command_repeats_the_arguments_but_not_the_key() -> None:
    """It can be pasted into a shell; the key comes from the environment."""
    words = [
        "fake",
        "oracle",
        "a b",
        "-b",
        "tasks=3",
        "--model-api-key",
        "sk-secret",
        "--reuse",
        "--run-id",
        "old",
    ]
    assert resume_command(context(*words, "--keep-environment"), "r1") == (
        "agentcompass run fake oracle 'a b' --benchmark-param tasks=3 "
        '--model-api-key "$MODEL_API_KEY" --reuse=true --keep-environment --run-id r1'
    )
