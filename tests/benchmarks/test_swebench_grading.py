"""From logs to verdicts: as the official report has it, and never fooled by a broken machine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcompass.benchmarks.swebench.evidence import (
    CONTROL_LOG,
    EVIDENCE,
    TEST_LOG,
    Evidence,
    encode_evidence,
)
from agentcompass.benchmarks.swebench.grading import grade, status_of
from agentcompass.benchmarks.swebench.scripts import END_MARK, START_MARK
from agentcompass.errors import VerifierError
from agentcompass.protocols import PATCH_ARTIFACT, Outcome, Task, Verdict

from .test_swebench_rows import CLASSIC

pytestmark = pytest.mark.slow

FAIL_TO_PASS = ["t.py::a", "t.py::b"]
PASS_TO_PASS = ["t.py::c", "t.py::d"]
ALL_PASS = dict.fromkeys(FAIL_TO_PASS + PASS_TO_PASS, "PASSED")


def task(**changes: Any) -> Task:
    hidden = {
        "row": CLASSIC,
        "script": "",
        "parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
        "fail_to_pass": FAIL_TO_PASS,
        "pass_to_pass": PASS_TO_PASS,
    }
    return Task(id="t", prompt="", hidden={**hidden, **changes})


def log_of(statuses: dict[str, str], *, before: str = "") -> str:
    lines = "".join(f"{status} {test}\n" for test, status in statuses.items())
    return f"{before}\n+ : '{START_MARK}'\n{lines}+ : '{END_MARK}'\n"


def graded(log: str, evidence: Evidence, *, control: str = "", **changes: Any) -> Verdict:
    artifacts = {
        PATCH_ARTIFACT: b"x\n",
        TEST_LOG: log.encode(),
        CONTROL_LOG: control.encode(),
        EVIDENCE: encode_evidence(evidence),
    }
    return grade(task(**changes), Outcome(artifacts=artifacts))


def done(exit_code: int = 0, **fields: Any) -> Evidence:
    return Evidence(applied="apply", exit_code=exit_code, **fields)


_STATUS = st.sampled_from(["PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL", ""])


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(FAIL_TO_PASS + PASS_TO_PASS, _STATUS)))
def test_verdicts_are_the_official_ones(statuses: dict[str, str]) -> None:
    """Nothing is resolved that the official report does not call so; but for skipped tests, both agree."""
    reported = {test: status for test, status in statuses.items() if status}
    failing = any(status in {"FAILED", "ERROR"} for status in reported.values())
    verdict = graded(log_of({"t.py::other": "PASSED", **reported}), done(int(failing)))
    official = verdict.output["official_resolved"]
    assert official or not verdict.success
    if not any(statuses[test] == "SKIPPED" for test in FAIL_TO_PASS):
        assert verdict.success == official


@pytest.mark.parametrize(
    ("statuses", "rates"),
    [
        (ALL_PASS, (1.0, 1.0)),
        ({**ALL_PASS, "t.py::a": "XFAIL", "t.py::c": "XFAIL"}, (1.0, 1.0)),
        ({**ALL_PASS, "t.py::c": "SKIPPED"}, (1.0, 1.0)),
        ({**ALL_PASS, "t.py::a": "SKIPPED"}, (0.5, 1.0)),
        ({**ALL_PASS, "t.py::a": "FAILED", "t.py::d": "ERROR"}, (0.5, 0.5)),
        ({"t.py::a": "PASSED"}, (0.5, 0.0)),
    ],
)
def test_rates(statuses: dict[str, str], rates: tuple[float, float]) -> None:
    """How much of either list passes; resolved is all of both."""
    verdict = graded(log_of(statuses), done())
    assert (verdict.metrics["fail_to_pass"], verdict.metrics["pass_to_pass"]) == rates
    assert verdict.success == (rates == (1.0, 1.0))


def test_empty_lists_are_satisfied() -> None:
    """No test expected, none failed."""
    verdict = graded(log_of({"t.py::x": "PASSED"}), done(), fail_to_pass=[], pass_to_pass=[])
    assert verdict.success


def test_failing_command_without_a_failing_test_is_suspicious() -> None:
    """The log does not describe the run that happened."""
    verdict = graded(log_of(ALL_PASS), done(1))
    assert not verdict.success
    assert "exit code 1" in verdict.explanation


def test_results_that_do_not_depend_on_the_tests_are_made_up() -> None:
    """A spoiled test that passes in the control run convicts the prediction."""
    honest = log_of({"t.py::a": "FAILED", "t.py::b": "ERROR", "t.py::c": "PASSED"})
    forged = log_of({"t.py::a": "PASSED"})
    assert graded(log_of(ALL_PASS), done(control="done"), control=honest).success
    verdict = graded(log_of(ALL_PASS), done(control="done"), control=forged)
    assert not verdict.success
    assert verdict.output["suspicious"]


@pytest.mark.parametrize(
    ("fail_to_pass", "files", "convicted"),
    [
        (["t/a.py::x", "t/a.py::y"], ["t/a.py"], True),
        (["t/other.py::x", "t/a.py::y"], ["t/a.py"], False),
        (["t.a.T.x", "t.a.T.y"], ["t/a.py"], True),
        (["TestX", "TestY"], ["a_test.go"], False),
        (["TestX"], ["a_test.go"], True),
    ],
)
def test_tests_of_files_that_were_not_spoiled_convict_nobody(
    fail_to_pass: list[str], files: list[str], convicted: bool
) -> None:
    """The first test passes in the control run: forged, unless it may stand in a file that is as it was."""
    patch = "".join(f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-x\n+y\n" for name in files)
    row = {**CLASSIC, "test_patch": patch}
    expected = {"fail_to_pass": fail_to_pass, "pass_to_pass": []}
    run = log_of(dict.fromkeys(fail_to_pass, "PASSED"))
    control = log_of({fail_to_pass[0]: "PASSED"})
    verdict = graded(run, done(control="done"), control=control, row=row, **expected)
    assert verdict.output["suspicious"] == convicted


@pytest.mark.parametrize("before", ["No space left on device", "fatal: Could not resolve host: example.com"])
def test_broken_machine_before_the_tests_is_no_wrong_answer(before: str) -> None:
    """The tests never began, and the log says why."""
    with pytest.raises(VerifierError, match="never began"):
        graded(before, done())


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(applied="apply", timed_out=True, disk_full=True),
        Evidence(applied="apply", timed_out=True, out_of_memory=True),
    ],
)
def test_broken_machine_is_no_wrong_answer(evidence: Evidence) -> None:
    """The tests were cut short, and the machine itself is out of something."""
    with pytest.raises(VerifierError):
        graded(log_of({}), evidence)


def test_slow_tests_are_a_wrong_answer() -> None:
    """A time-out alone says nothing of the machine."""
    verdict = graded(log_of({}), Evidence(applied="apply", timed_out=True, test_seconds=1800.0))
    assert not verdict.success
    assert "stopped after 1800 s" in verdict.explanation


def test_code_under_test_cannot_blame_the_machine() -> None:
    """What it prints during the tests is no sign of a broken machine."""
    log = log_of({"t.py::a": "FAILED"}) + "No space left on device\n"
    assert not graded(log.replace("FAILED", "No space left on device\nFAILED"), done(1)).success


def test_infrastructure_trouble_with_a_verdict_stays_a_verdict() -> None:
    """Setting up may complain of the network as long as the tests ran."""
    assert graded(log_of(ALL_PASS, before="Could not resolve host: pypi.org"), done()).success


def test_fail_only_repositories_fail_only_by_word() -> None:
    """For a few JavaScript repositories, a test that the log does not name has passed."""
    fail_only = {"eval_type": "fail_only"}
    assert not graded(log_of({**ALL_PASS, "t.py::a": "FAILED"}), done(1), **fail_only).success
    row = {**CLASSIC, "repo": "acme/js", "version": ""}
    assert graded(log_of({"t.py::x": "PASSED"}), done(), row=row, **fail_only).success


@pytest.mark.parametrize(
    ("test", "status"),
    [
        ("t.py::a[x y", "PASSED"),
        ("t.py::m[a", None),
        ("t.py::a", None),
    ],
)
def test_names_that_were_cut_off_in_the_published_data(test: str, status: str | None) -> None:
    """One that ends within its parameters stands for all that begin so, if these agree."""
    statuses = {"t.py::a[x y z]": "PASSED", "t.py::m[a1]": "PASSED", "t.py::m[a2]": "FAILED"}
    assert status_of(test, statuses) == status


@pytest.mark.parametrize("patch", [b"", b"--- a/.git/config\n+++ b/.git/config\n"])
def test_what_is_never_applied_is_graded_without_evidence(patch: bytes) -> None:
    """There is nothing to test."""
    verdict = grade(task(), Outcome(artifacts={PATCH_ARTIFACT: patch}))
    assert (verdict.success, verdict.metrics) == (False, {"patch_applied": 0.0})
