"""``agentcompass doctor``: what there is, and what to do about the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .console import call

pytestmark = pytest.mark.slow


def findings(env: dict[str, str]) -> tuple[int, dict[str, dict[str, str]]]:
    result = call("doctor", "--json", env=env)
    return result.exit_code, {finding["what"]: finding for finding in json.loads(result.stdout)}


def test_machine_is_described() -> None:
    """Everything that a run may need, with advice where something is missing."""
    _, found = findings({"DOCKER_HOST": "unix:///nowhere.sock", "MODEL_API_KEY": ""})
    assert {"python", "bubblewrap", "docker", "disk of results", "open files", "clock"} <= found.keys()
    assert found["docker"]["state"] == "missing"
    assert "start the daemon" in found["docker"]["advice"]
    assert found["extra swebench"]["state"] == "ok"
    assert found["MODEL_API_KEY"]["state"] == "missing"


def test_key_is_not_shown() -> None:
    """Only whether it is set."""
    result = call("doctor", env={"MODEL_API_KEY": "sk-canary-1", "DOCKER_HOST": "unix:///nowhere.sock"})
    assert "sk-canary-1" not in result.output
    assert "MODEL_API_KEY" in result.stdout


def test_wrong_configuration_is_a_problem(tmp_path: Path) -> None:
    """It would spoil every run, so the exit code is 1."""
    (tmp_path / "c.yaml").write_text("limitt: 3\n")
    code, found = findings(
        {"AGENTCOMPASS_CONFIG": str(tmp_path / "c.yaml"), "DOCKER_HOST": "unix:///no.sock"}
    )
    assert code == 1
    assert "c.yaml:1: limitt: no such option" in found["configuration"]["advice"]
