"""Whole runs in containers, as a user starts and stops them."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ..cli.console import finish, start
from . import daemon

pytestmark = pytest.mark.slow

_ANSWER = "cp prompt.txt /tmp/seen; echo Paris"


def _arguments(folder: Path, image: str, command: str, **environment: object) -> list[str]:
    (folder / "questions.jsonl").write_text(
        "".join(json.dumps({"id": f"q{n}", "question": "Where?", "answer": "Paris"}) + "\n" for n in range(4))
    )
    params = {"image": image, **environment}
    pairs = [part for name, value in params.items() for part in ("-e", f"{name}={json.dumps(value)}")]
    return [
        *("run", "jsonl", "command", "-b", "path=questions.jsonl", "-b", "match=exact"),
        *("-H", f"command={json.dumps(command)}", "--environment", "docker", *pairs, "--json"),
    ]


def _run_json(result: Mapping[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(result["paths"]["run_json"]).read_text())
    return content


@pytest.mark.timeout(60)
def test_run_in_containers(tmp_path: Path, busybox_image: str) -> None:
    """Every task is answered, run.json says what the daemon is, and nothing stays."""
    process = start(*_arguments(tmp_path, busybox_image, _ANSWER), cwd=tmp_path)
    code, out, err = finish(process)
    assert code == 0, err
    result = json.loads(out)
    assert result["metrics"]["score"]["value"] == 1.0
    record = _run_json(result)
    assert record["environment"]["params"]["image"] == busybox_image
    assert record["environment_facts"]["engine"]
    assert daemon.resources_of(process.pid) == set()


@pytest.mark.timeout(60)
def test_refused_hosts_are_in_the_record(tmp_path: Path, busybox_image: str) -> None:
    """With the notice in the prompt, and the container's view of it."""
    ask = (
        "rest=${http_proxy#http://}; address=${rest##*@}; "
        "printf 'GET http://evil.test/ HTTP/1.0\\r\\nProxy-Authorization: Basic %s\\r\\n\\r\\n' "
        '"$(printf %s "${rest%@*}" | base64 -w 0)" | nc -w 3 "${address%:*}" "${address#*:}" >&2; '
        "grep -c 'only these hosts: pypi.org' prompt.txt >&2; echo Paris"
    )
    policy = {"mode": "allowlist", "hosts": ["pypi.org"]}
    arguments = _arguments(tmp_path, busybox_image, ask, run_network_policy=policy)
    code, out, err = finish(start(*arguments, "--limit", "1", cwd=tmp_path))
    assert code == 0, err
    details = list(Path(json.loads(out)["paths"]["details"]).iterdir())
    steps = json.loads(details[0].read_text())["steps"]
    assert "network: refused evil.test:80" in [step.get("text") for step in steps]
    [command] = [step for step in steps if step["type"] == "command"]
    assert "does not allow evil.test:80" in command["stderr"]
    assert command["stderr"].endswith("1\n")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("times", [1, 2])
def test_interrupted_run_removes_its_containers(tmp_path: Path, busybox_image: str, times: int) -> None:
    """Ctrl-C once or twice: exit code 130, no traceback, nothing left."""
    process = start(*_arguments(tmp_path, busybox_image, "sleep 300"), cwd=tmp_path)
    deadline = time.monotonic() + 20
    while len(daemon.resources_of(process.pid)) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    code, out, err = finish(process)
    assert code == 130
    assert "Traceback" not in err
    assert json.loads(out)["metrics"]["counts"]["cancelled"] == 4
    assert daemon.resources_of(process.pid) == set()


def test_daemon_that_is_not_there_is_said_before_anything_runs(tmp_path: Path, busybox_image: str) -> None:
    """One sentence with the way out, exit code 2, no run directory."""
    arguments = _arguments(tmp_path, busybox_image, _ANSWER, docker_host="unix:///nowhere.sock")
    code, _, err = finish(start(*arguments, cwd=tmp_path))
    assert code == 2
    assert "docker info" in err
    assert not (tmp_path / "results").exists()
