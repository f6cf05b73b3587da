"""``agentcompass list``: every component, also those that cannot be imported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .console import ODD_HARNESSES, call, finish, start


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("benchmarks", "humaneval"), ("harnesses", "oracle"), ("environments", "local")],
)
def test_components_are_listed_with_source_and_sentence(kind: str, expected: str) -> None:
    """Id, where it comes from, and the first sentence about it."""
    entries = {entry["id"]: entry for entry in json.loads(call("list", kind, "--json").stdout)}
    assert entries[expected]["source"].startswith("agentcompass.")
    assert entries[expected]["summary"].endswith(".")
    assert expected in call("list", kind).stdout


@pytest.mark.slow
def test_plugins_are_listed_too(tmp_path: Path) -> None:
    """A plugin's components stand among the others, told by their first sentence."""
    _, out, _ = finish(start("list", "harnesses", *ODD_HARNESSES, cwd=tmp_path))
    [line] = [line for line in out.splitlines() if line.startswith("hang ")]
    assert line.endswith("Hangs on every task but the first.")


def test_unknown_kind_is_refused() -> None:
    """The message lists the kinds."""
    result = call("list", "models")
    assert result.exit_code == 2
    assert "'benchmarks'" in result.stderr


@pytest.mark.slow
def test_component_that_cannot_be_imported_is_listed_with_its_error(tmp_path: Path) -> None:
    """One broken package must not hide the others."""
    package = tmp_path / "broken-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n", "utf-8")
    (package / "entry_points.txt").write_text("[agentcompass.harnesses]\nbroken = no_module:X\n", "utf-8")
    code, out, _ = finish(
        start("list", "harnesses", "--json", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    )
    entries = {entry["id"]: entry for entry in json.loads(out)}
    assert code == 0
    assert "No module named 'no_module'" in entries["broken"]["error"]
    assert "error" not in entries["oracle"]
