"""The evaluation script, run by a real bash: what its marks and its control run can be trusted with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentcompass.benchmarks.swebench.scripts import (
    END_MARK,
    START_MARK,
    MarkedLog,
    control,
    evaluation,
    split_log,
    spoil,
    take_apart,
)
from agentcompass.errors import ConfigError

MARK = "0123456789abcdef"


def official(tests: str, *, setup: str = "") -> str:
    marked = f": '{START_MARK}'\n{tests}\n: '{END_MARK}'\n"
    return f"#!/bin/bash\nset -uxo pipefail\n{setup}\n{marked}git checkout x\n"


def bash(script: str, folder: Path) -> bytes:
    command = ["bash", "-c", script]
    done = subprocess.run(
        command,
        cwd=folder,
        input=f"{MARK}\n".encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.stdout


def run(tests: str, folder: Path, *, setup: str = "") -> MarkedLog:
    script = evaluation(take_apart(official(tests, setup=setup)), state=f"{folder}/state")
    return split_log(bash(script, folder), MARK)


def test_output_and_exit_code_of_the_tests(tmp_path: Path) -> None:
    """What is before the tests, what they print, and how they end are told apart."""
    log = run("echo out; echo err >&2\nfalse", tmp_path, setup="echo preparing")
    assert log.tests is not None
    assert b"preparing" in log.setup
    assert b"out\n" in log.tests
    assert b"err\n" in log.tests
    assert log.exit_code == 1
    assert log.forged_marks == 0


def test_parsers_get_the_log_that_the_official_script_writes(tmp_path: Path) -> None:
    """The official marks are there once, around the output of the tests."""
    text = run("echo PASSED a::b", tmp_path).official().decode()
    between = text.split(START_MARK)[1].split(END_MARK)[0]
    assert "\nPASSED a::b\n" in between
    assert (text.count(START_MARK), text.count(END_MARK)) == (1, 1)
    assert ">>>>> Test Exit Code: 0" in text


@pytest.mark.parametrize("where", ["setup", "tests"])
def test_printed_marks_mean_nothing(tmp_path: Path, where: str) -> None:
    """Code that prints the official marks moves no border, and is found out."""
    forged = f"printf '%s\\n' \"+ : '{START_MARK}'\" 'PASSED forged' \"+ : '{END_MARK}'\""
    log = run(forged if where == "tests" else "true", tmp_path, setup=forged if where == "setup" else "")
    text = log.official().decode()
    assert log.forged_marks >= 2
    assert (text.count(START_MARK), text.count(END_MARK)) == (1, 1)
    assert ("PASSED forged" in text.split(START_MARK)[1]) == (where == "tests")


def test_the_mark_is_nowhere_to_be_read(tmp_path: Path) -> None:
    """Neither the environment nor the arguments nor any file that is left holds the secret."""
    look = "env; cat /proc/$$/cmdline | tr '\\0' '\\n'; cat; grep -r . . /dev/null"
    log = run(look, tmp_path)
    assert log.tests is not None
    assert MARK.encode() not in log.tests
    assert not any(MARK in path.read_text() for path in tmp_path.iterdir())


@pytest.mark.parametrize("tests", ["kill -9 $$", "exec true", "exit 0"])
def test_shell_that_ends_early_leaves_no_result(tmp_path: Path, tests: str) -> None:
    """Without the end mark there is no exit code."""
    log = run(tests, tmp_path)
    assert log.tests is not None
    assert log.exit_code is None
    assert END_MARK not in log.official().decode()


def test_setup_that_fails_leaves_no_tests(tmp_path: Path) -> None:
    """A script that never comes to the tests says so."""
    log = run("true", tmp_path, setup="exit 7")
    assert (log.tests, log.exit_code) == (None, None)
    assert START_MARK not in log.official().decode()


def test_control_runs_where_the_tests_ran(tmp_path: Path) -> None:
    """Variables, functions and the directory of the set-up are there again; the files are spoiled."""
    folder = tmp_path / "work tree"
    folder.mkdir()
    (folder / "test_a.py").write_text("def test_a():\n    pass\n")
    setup = f"cd '{folder}'\nexport GREETING='a b'\nplain=c\nsay() {{ echo \"$GREETING $plain\"; }}"
    tests = "say\npython3 -c 'import test_a; test_a.test_a()'"
    script = take_apart(official(tests, setup=setup))
    before = split_log(bash(evaluation(script, state=f"{tmp_path}/state"), tmp_path), MARK)
    commands = spoil(["test_a.py"])
    assert commands is not None
    after = split_log(bash(control(script, state=f"{tmp_path}/state", spoil=commands), tmp_path), MARK)
    assert (before.exit_code, after.exit_code) == (0, 1)
    assert after.tests is not None
    assert b"a b c\n" in after.tests


_SPOILED = """\
import unittest
import pytest

class Base:
    def test_inherited(self):
        pass

class TestGroup(Base):
    def test_own(self):
        pass

class Case(unittest.TestCase):
    def test_case(self):
        pass

@pytest.mark.parametrize("n", [1, 2])
def test_parameters(n):
    pass

@pytest.mark.skip
def test_skipped():
    pass

test_lambda = lambda: None"""


@pytest.mark.slow
def test_every_kind_of_python_test_fails_when_spoiled(tmp_path: Path) -> None:
    """Functions, methods, inherited ones, parametrized ones: none passes, also without a final newline."""
    (tmp_path / "test_it.py").write_text(_SPOILED)
    commands = spoil(["test_it.py"])
    assert commands is not None
    subprocess.run(["bash", "-c", commands], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "test_it.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "FAILED test_it.py::TestGroup::test_inherited" in done.stdout
    assert "PASSED" not in done.stdout


@pytest.mark.parametrize(("files", "possible"), [
    (["tests/test_a.py", "tests/data.json"], True),
    (["src/a_test.go", "lib/a.test.tsx", "x.spec.mjs"], True),
    (["test-data/unit/check.test"], False),
    (["tests/data.json"], False),
    (["tests/unit.tcl", "a.py"], False),
    ([], False),
])  # fmt: skip
def test_spoiling_is_possible_only_where_all_tests_are_known(files: list[str], possible: bool) -> None:
    """A file of an unknown kind may hold tests that would go on passing."""
    assert (spoil(files) is not None) == possible


def test_file_names_are_no_commands(tmp_path: Path) -> None:
    """Blanks and quotes in names are taken literally."""
    name = "a 'b' $(touch pwned).py"
    (tmp_path / name).write_text("")
    commands = spoil([name])
    assert commands is not None
    subprocess.run(["bash", "-c", commands], cwd=tmp_path, check=True)
    assert "control run" in (tmp_path / name).read_text()
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("script", ["", "#!/bin/bash\npytest\n", f": '{END_MARK}'\n: '{START_MARK}'\n"])
def test_script_without_marks_is_refused(script: str) -> None:
    """Such a script is found out before anything runs."""
    with pytest.raises(ConfigError, match="Start Test Output"):
        take_apart(script)


def test_marks_within_a_test_patch_are_no_marks() -> None:
    """Added lines of the patch that the script holds are content."""
    patch = f"git apply - <<'EOF'\n+: '{START_MARK}'\n+: '{END_MARK}'\nEOF"
    script = take_apart(official("pytest", setup=patch))
    assert script.tests == "pytest"
    assert patch in script.setup
