"""``agentcompass config``: effective values, parameters of components, the schema of launch files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .console import call

pytestmark = pytest.mark.slow


def test_show_tells_values_and_where_they_come_from(tmp_path: Path) -> None:
    """Line of a file, environment variable, or built-in; never a key."""
    (tmp_path / "c.yaml").write_text("limit: 7\nmodel_api_key: sk-canary-1\n")
    result = call(
        "config",
        "show",
        "--config",
        str(tmp_path / "c.yaml"),
        "--json",
        env={"MODEL_BASE_URL": "http://h/v1"},
    )
    entries = {entry["option"]: entry for entry in json.loads(result.stdout)["options"]}
    assert (entries["limit"]["value"], entries["limit"]["source"]) == (7, f"{tmp_path}/c.yaml:1")
    assert entries["model_base_url"]["source"] == "environment variable MODEL_BASE_URL"
    assert entries["k"] == {"option": "k", "value": 1, "source": "built-in"}
    assert "sk-canary-1" not in result.output
    assert "limit" in call("config", "show").stdout


def test_docs_tell_parameters_of_a_component() -> None:
    """Its own and those that every component of its kind takes."""
    text = call("config", "docs", "environment", "docker").stdout
    assert "memory_mb" in text
    assert "network_policy" in text
    entries = json.loads(call("config", "docs", "benchmark", "jsonl", "--json").stdout)["parameters"]
    assert {"path", "sample_ids"} <= {entry["name"] for entry in entries}
    assert "task_concurrency" in call("config", "docs", "run").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["harness"], "name one; see agentcompass list harnesses"),
        (["harness", "orcle"], "did you mean 'oracle'"),
        (["run", "x"], "takes no id"),
    ],
)
def test_wrong_question_is_exit_code_2(arguments: list[str], message: str) -> None:
    """It says what to ask instead."""
    result = call("config", "docs", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_schema_knows_sections_and_parameters() -> None:
    """Editors can complete ids and parameters, and everything that only Python can give is left out."""
    schema = json.loads(call("config", "schema").stdout)
    assert {"requests", "matrix", "defaults", "extends", "runtime"} <= schema["properties"].keys()
    section = schema["$defs"]["environment_section"]["anyOf"]
    assert "docker" in section[0]["examples"]
    docker = next(rule for rule in section[1]["allOf"] if rule["if"]["properties"]["id"]["const"] == "docker")
    assert "memory_mb" in docker["then"]["properties"]
    assert "on_progress" not in json.dumps(schema)
    assert "base_url" in schema["$defs"]["ModelSpec"]["properties"]
