"""Optional dependencies: the exact command is told, and it is run only where somebody asked for it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agentcompass.engine import extras
from agentcompass.engine.extras import (
    declared_extras,
    declared_requirements,
    install,
    install_command,
    missing_requirements,
)
from agentcompass.errors import ConfigError


def test_requirements_are_those_of_our_metadata() -> None:
    """Nothing is installed that we do not declare."""
    assert {"swebench", "mini-swe-agent", "sandbox"} <= set(declared_extras())
    assert any(line.startswith("pyarrow") for line in declared_requirements("swebench"))
    assert declared_requirements("no such extra") == []


def test_installed_requirements_are_not_missing() -> None:
    """The tests have them all."""
    assert missing_requirements("swebench") == []


def test_command_uses_the_running_python() -> None:
    """Its own pip, whatever is first on the PATH."""
    assert install_command(["x>=1"]) == [sys.executable, "-m", "pip", "install", "x>=1"]


def test_failed_installation_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    """The command is shown before it runs, and the end of its output if it fails."""
    command = [sys.executable, "-c", "import sys; sys.exit('no such package')"]
    with pytest.raises(ConfigError, match=r"(?s)failed with exit code 1:.*no such package"):
        install(command)
    assert "installing: " in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.timeout(120)
def test_command_installs(tmp_path: Path) -> None:
    """A fresh environment has the package afterwards."""
    wheel = tmp_path / "tiny_extra-1.0-py3-none-any.whl"
    info = "tiny_extra-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_extra.py", "VALUE = 42\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-extra\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    root = Path(extras.__file__).parents[2]
    program = (
        "import importlib.util, sys; sys.path[:0] = sys.argv[2].split(':');"
        "from agentcompass.engine.extras import install, install_command;"
        "install(install_command(['--no-index', sys.argv[1]]))"
    )
    paths = ":".join([str(root), *(path for path in sys.path if path.endswith("site-packages"))])
    subprocess.run([python, "-c", program, wheel, paths], check=True, capture_output=True)
    said = subprocess.run(
        [python, "-c", "import tiny_extra; print(tiny_extra.VALUE)"], capture_output=True, check=True
    )
    assert said.stdout == b"42\n"
