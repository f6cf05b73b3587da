"""
The scripts that run in sessions: plain text in, marked logs out.

The official evaluation script marks the output of the tests with lines that anybody can print. Ours marks
it with a secret instead, which comes by standard input before any code of the repository runs and is never in
a file, an argument or the environment; so neither the borders of the test output nor the exit code of the
tests can be forged by printing. The official marks are put back into the log afterwards, for the parsers.
"""

from __future__ import annotations

import importlib.resources
import re
import shlex
from dataclasses import dataclass

from ...errors import ConfigError

START_MARK = ">>>>> Start Test Output"
END_MARK = ">>>>> End Test Output"
EXIT_CODE_MARK = ">>>>> Test Exit Code"

_MARK_LINE = r"^\s*(?::|echo)\s+['\"]?{}['\"]?\s*$"
_START_LINE = re.compile(_MARK_LINE.format(re.escape(START_MARK)), re.MULTILINE)
_END_LINE = re.compile(_MARK_LINE.format(re.escape(END_MARK)), re.MULTILINE)
_FORGED = re.compile(rb">>>>> (?=Start Test Output|End Test Output|Test Exit Code)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestScript:
    """An official evaluation script, taken apart: set-up, then the commands that run the tests."""

    __test__ = False

    setup: str
    tests: str


def take_apart(script: str) -> TestScript:
    """
    Split an official evaluation script at its marks; what comes after the tests only tidies up.

    Raises:
        ConfigError: It has no marks.
    """
    start = _START_LINE.search(script)
    end = _END_LINE.search(script, start.end()) if start else None
    if start is None or end is None:
        raise ConfigError(f"the evaluation script has no lines with {START_MARK!r} and {END_MARK!r}")
    return TestScript(setup=script[: start.start()], tests=script[start.end() : end.start()].strip("\n"))


_EVALUATION = """\
IFS= read -r _mark
{setup}
{{
    set +x
    (unset _mark; declare -p) >{state}.variables
    declare -f >{state}.functions
    pwd >{state}.directory
}} 2>/dev/null
{{ printf '\\n%s start\\n' "$_mark"; set -x; }} 2>/dev/null
{tests}
{{ _code=$?; set +x; printf '\\n%s end %d\\n' "$_mark" "$_code"; }} 2>/dev/null
"""

_CONTROL = """\
IFS= read -r _control_mark
. {state}.variables 2>/dev/null
. {state}.functions 2>/dev/null
cd "$(cat {state}.directory)" || exit 1
{spoil}
printf '\\n%s start\\n' "$_control_mark"
{tests}
_code=$?
printf '\\n%s end %d\\n' "$_control_mark" "$_code"
"""


def evaluation(script: TestScript, *, state: str) -> str:
    """
    Return the script that sets up and runs the tests; its standard input is the mark.

    Args:
        state: Where the state of the shell before the tests is kept for ``control``: the start of a path.
    """
    return _EVALUATION.format(setup=script.setup, tests=script.tests, state=shlex.quote(state))


def control(script: TestScript, *, state: str, spoil: str) -> str:
    """
    Return the script that runs the same tests after ``spoil`` has made every one of them fail.

    Whatever it still reports as passed does not depend on the tests, so its output is made up.
    """
    return _CONTROL.format(tests=script.tests, state=shlex.quote(state), spoil=spoil)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedLog:
    """
    A log, split at the secret marks.

    Args:
        setup: What came before the tests.
        tests: The output of the tests; None if they never began.
        exit_code: Of the tests; None if they did not end.
        forged_marks: How often an official mark was printed, which only code of the repository can have done.
    """

    setup: bytes
    tests: bytes | None
    exit_code: int | None
    forged_marks: int

    def official(self) -> bytes:
        """Return the log as the official script would have written it."""
        if self.tests is None:
            return self.setup
        log = self.setup + f"+ : '{START_MARK}'\n".encode() + self.tests
        if self.exit_code is None:
            return log
        return log + f"+ : '{END_MARK}'\n{EXIT_CODE_MARK}: {self.exit_code}\n".encode()


def split_log(log: bytes, mark: str) -> MarkedLog:
    """Split a log at its marks, and break every official mark in it."""
    setup, began, rest = log.partition(f"\n{mark} start\n".encode())
    tests, ended, code = rest.partition(f"\n{mark} end ".encode())
    setup, forged_before = _FORGED.subn(b">>>> ", setup)
    tests, forged_within = _FORGED.subn(b">>>> ", tests)
    number = code.partition(b"\n")[0]
    return MarkedLog(
        setup=setup,
        tests=tests + b"\n" if began else None,
        exit_code=int(number) if ended and number.isdigit() else None,
        forged_marks=forged_before + forged_within,
    )


def work_tree_command(name: str, *arguments: str) -> list[str]:
    """Return the command that runs one of the shell scripts beside this module in a work tree at its base."""
    folder = importlib.resources.files(__package__)
    texts = [folder.joinpath(part).read_text("utf-8") for part in ("work_tree.sh", f"{name}.sh")]
    return ["sh", "-c", "\n".join(["exec 2>&1", *texts]), name, *arguments]


# --- spoiling tests -------------------------------------------------------------------------------

_DATA_SUFFIXES = re.compile(
    r"\.(cfg|css|csv|gif|golden|html|ini|jpe?g|json|md|out|pdf|pkl|png|po|rst|sql|svg|toml|tsv|txt|xml|ya?ml)$"
)
_CODE_SUFFIXES = re.compile(r"\.(c|cc|[cm]?[jt]sx?|cpp|cs|go|h|hpp|java|kt|php|rb|rs|scala)$")
_NO_PROGRAM = "@@@ control run: this is no program @@@\n"
_EVERY_TEST_FAILS = """

def _control_fail(*_arguments, **_options):
    raise AssertionError("control run: every test of this file must fail")


for _name, _thing in list(globals().items()):
    if isinstance(_thing, type):
        for _member in [name for name in dir(_thing) if name.lower().startswith("test")]:
            try:
                setattr(_thing, _member, _control_fail)
            except (AttributeError, TypeError):
                pass
    elif _name.lower().startswith("test") and callable(_thing):
        globals()[_name] = _control_fail
"""


def spoil(files: list[str]) -> str | None:
    """
    Return shell commands after which every test in these files fails.

    Returns:
        None where that cannot be done: a file of a kind that we do not know may hold tests.
    """
    commands = []
    for name in files:
        path = shlex.quote(name)
        if name.endswith(".py"):
            commands.append(f"[ -f {path} ] && printf %s {shlex.quote(_EVERY_TEST_FAILS)} >>{path}")
        elif _CODE_SUFFIXES.search(name):
            commands.append(f"[ -f {path} ] && printf %s {shlex.quote(_NO_PROGRAM)} >{path}")
        elif not _DATA_SUFFIXES.search(name):
            return None
    return "\n".join(commands) or None
