"""The command as a whole: help, start-up, exit codes, and what broken surroundings do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentcompass import __version__

from .console import call, finish, start


def test_help_lists_commands_and_exit_codes() -> None:
    """Everything that a person needs to go on stands in the help."""
    result = call("--help")
    assert result.exit_code == 0
    for word in ("run", "summary", "show", "list", "completion", "130, 143"):
        assert word in result.stdout


def test_no_command_shows_the_help_as_a_mistake() -> None:
    """Without a command the help goes to standard error, and the exit code says wrong input."""
    result = call()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Commands:" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shwo"], "error: no such command 'shwo'"),
        (["show"], "error: missing argument 'RUN_DIR'"),
        (["list", "--nothing", "recipes"], "error: no such option '--nothing'"),
        (["summary", "nowhere"], "error: 'nowhere' is not a run directory: it has no run.json"),
    ],
)
def test_wrong_input_is_one_sentence(arguments: list[str], message: str) -> None:
    """Exit code 2, the message on standard error, nothing on standard output, no traceback."""
    result = call(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)


def test_version() -> None:
    """The version is one line."""
    assert call("--version").stdout == f"agentcompass {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    """The script names the variable that the program answers to."""
    result = call("completion", shell)
    assert result.exit_code == 0
    assert "_AGENTCOMPASS_COMPLETE" in result.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("agentcompass su", "summary"),
        ("agentcompass run human", "humaneval"),
        ("agentcompass run humaneval orac", "oracle"),
        ("agentcompass run --strategy pa", "pass"),
        ("agentcompass run --environment loc", "local"),
        ("agentcompass run --benchmark-p", "--benchmark-param"),
    ],
)
def test_words_are_completed(words: str, expected: str) -> None:
    """Commands, ids, options and their values are offered."""
    env = {
        "_AGENTCOMPASS_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    assert f"plain,{expected}" in call(env=env).stdout.splitlines()


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    """``--help`` is quick because the engine, pydantic, structlog, httpx and rich stay out."""
    code = (
        "import sys\n"
        "from agentcompass.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "click" in loaded
    assert not loaded & {"pydantic", "structlog", "httpx", "rich", "anyio", "agentcompass.engine.api"}


@pytest.mark.slow
def test_ascii_terminal_gets_replacement_characters(tmp_path: Path) -> None:
    """A locale without Unicode breaks neither help nor a run."""
    env = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    code, out, _ = finish(start("run", "--help", cwd=tmp_path, env=env))
    assert code == 0
    assert out.isascii()
    code, out, err = finish(start("run", "fake", "oracle", "日本語", cwd=tmp_path, env=env))
    assert code == 0
    assert "model        ???" in out
    assert out.isascii()
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["list", "harnesses"], ["list", "harnesses", "--json"]])
def test_reader_that_has_gone_is_no_traceback(tmp_path: Path, arguments: list[str]) -> None:
    """A closed pipe ends the program quietly."""
    reader, writer = os.pipe()
    os.close(reader)
    process = start(*arguments, cwd=tmp_path, stdout=writer)
    os.close(writer)
    assert finish(process)[2] == ""


@pytest.mark.slow
def test_interrupt_outside_of_a_run_is_exit_code_130(tmp_path: Path) -> None:
    """Ctrl-C during start-up, here while a plugin is imported, leaves no traceback."""
    (tmp_path / "plugin.py").write_text("raise KeyboardInterrupt", "utf-8")
    code, out, err = finish(start("list", "harnesses", "--plugin", "plugin.py", cwd=tmp_path))
    assert (code, out, err.strip()) == (130, "", "")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_document_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A full disk must not look like success to the program that waits for the document."""
    with Path("/dev/full").open("wb") as full:
        code, _, err = finish(start("list", "harnesses", "--json", cwd=tmp_path, stdout=full.fileno()))
    assert code == 1
    assert err == "error: cannot write to standard output: No space left on device\n"
