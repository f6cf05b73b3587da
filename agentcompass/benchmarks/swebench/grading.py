"""
From the log of a test run to a verdict, by the rules of SWE-bench.

A test passes with PASSED or XFAIL; one that is to keep passing may also be skipped. An instance is resolved
when every FAIL_TO_PASS and every PASS_TO_PASS test passes. The official report function judges the same log;
where it and we disagree, the instance is not resolved and the verdict says so. On top of the official rules,
output that does not depend on the tests does not count (see ``scripts.control``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ...errors import VerifierError
from ...protocols import Outcome, Task, Verdict
from . import official
from .evidence import CONTROL_LOG, EVIDENCE, TEST_LOG, Evidence, decode_evidence
from .patches import prediction, target_files, touches_git_directory
from .scripts import END_MARK, START_MARK

_PASSING = frozenset({"PASSED", "XFAIL"})
_FAILING = frozenset({"FAILED", "ERROR"})
_BROKEN_MACHINE = re.compile(
    r"No space left on device|Cannot allocate memory|Could not resolve host"
    r"|Temporary failure in name resolution|Read-only file system|Input/output error"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResults:
    """The expected tests by what became of them."""

    __test__ = False

    passed: Sequence[str]
    failed: Sequence[str]

    @property
    def rate(self) -> float:
        """The share that passed; 1 if none was expected."""
        total = len(self.passed) + len(self.failed)
        return len(self.passed) / total if total else 1.0

    def summary(self) -> dict[str, Any]:
        """Return both lists for the report."""
        return {"success": list(self.passed), "failure": list(self.failed)}


def grade(task: Task, outcome: Outcome) -> Verdict:
    """
    Judge a prediction; blocks, and may take long on a long log.

    Raises:
        VerifierError: The machine of the tests broke, so nothing is known about the prediction.
    """
    patch = prediction(outcome)
    if not patch:
        return _unresolved("the prediction is empty")
    if touches_git_directory(patch):
        return _unresolved("the prediction changes files in .git, so it was not applied")
    if EVIDENCE not in outcome.artifacts:
        raise VerifierError("the prediction was not tested")
    evidence = decode_evidence(outcome.artifacts[EVIDENCE])
    if evidence.applied == "none":
        return _unresolved("the prediction cannot be applied", applied=0.0, message=evidence.apply_message)
    return _Run(task.hidden, evidence, _text(outcome, TEST_LOG), _text(outcome, CONTROL_LOG)).verdict()


def _text(outcome: Outcome, name: str) -> str:
    return outcome.artifacts.get(name, b"").decode("utf-8", "replace")


def _unresolved(why: str, *, applied: float = 0.0, **report: Any) -> Verdict:
    output = {"resolved": False, **report}
    return Verdict(
        score=0.0, success=False, metrics={"patch_applied": applied}, explanation=why, output=output
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """One test run, about to be judged."""

    hidden: Mapping[str, Any]
    evidence: Evidence
    log: str
    control_log: str

    def verdict(self) -> Verdict:
        """
        Say whether the instance is resolved.

        Raises:
            VerifierError: The machine broke.
        """
        invalid = self._why_invalid()
        if invalid:
            self._require_sound_machine(invalid)
            return _unresolved(invalid, applied=1.0)
        statuses = self._statuses(self.log)
        if not statuses and self.hidden["eval_type"] == "pass_and_fail":
            self._require_sound_machine("no test reported anything")
        fail_to_pass = self._results(statuses, "fail_to_pass", keep=False)
        pass_to_pass = self._results(statuses, "pass_to_pass", keep=True)
        forged = self._forged()
        reasons = self._reasons(statuses, fail_to_pass, pass_to_pass, forged=forged)
        official_resolved = official.is_resolved(self.hidden, self.log, statuses)
        if not reasons and not official_resolved:
            reasons = ["not resolved by the official report, though by our own reading of the log"]
        return Verdict(
            score=float(not reasons),
            success=not reasons,
            metrics={
                "patch_applied": 1.0,
                "fail_to_pass": fail_to_pass.rate,
                "pass_to_pass": pass_to_pass.rate,
            },
            explanation="; ".join(reasons),
            output={
                "resolved": not reasons,
                "official_resolved": official_resolved,
                "suspicious": forged or bool(self.evidence.forged_marks),
                "tests": {"FAIL_TO_PASS": fail_to_pass.summary(), "PASS_TO_PASS": pass_to_pass.summary()},
                "swebench": version("swebench"),
            },
        )

    def _why_invalid(self) -> str:
        if self.evidence.timed_out:
            return f"the tests were stopped after {self.evidence.test_seconds:.0f} s"
        if START_MARK not in self.log:
            return "the tests never began: setting up the repository failed"
        if END_MARK not in self.log:
            return "the tests ended without a result: their shell was killed"
        return ""

    def _require_sound_machine(self, what: str) -> None:
        """
        Tell a broken machine from a wrong answer.

        Only what the code under test cannot print counts: the machine's state, and the log before it ran.
        """
        if self.evidence.disk_full:
            raise VerifierError(f"{what}, and the disk of the session is full", retryable=True)
        if self.evidence.out_of_memory:
            raise VerifierError(f"{what}, and the session ran out of memory; raise memory_mb")
        before = self.log.partition(START_MARK)[0]
        if sign := _BROKEN_MACHINE.search(before):
            raise VerifierError(f"{what}, and the log says: {sign.group()}", retryable=True)

    def _statuses(self, log: str) -> dict[str, str]:
        """Parse what is between the marks; the whole log if that is nothing, as the official rules say."""
        parse = official.parsers()[self.hidden["parser"]]
        context = official.parser_context(self.hidden)
        between = log.partition(START_MARK)[2].partition(END_MARK)[0]
        return dict(parse(between, context) or parse(log, context))

    def _results(self, statuses: Mapping[str, str], field: str, *, keep: bool) -> TestResults:
        passed: list[str] = []
        failed: list[str] = []
        for test in self.hidden[field]:
            (passed if self._passes(statuses, test, keep=keep) else failed).append(test)
        return TestResults(passed=passed, failed=failed)

    def _passes(self, statuses: Mapping[str, str], test: str, *, keep: bool) -> bool:
        status = status_of(test, statuses)
        if self.hidden["eval_type"] == "fail_only":
            return status != "FAILED"
        return status in _PASSING or (keep and status == "SKIPPED")

    def _reasons(
        self,
        statuses: Mapping[str, str],
        fail_to_pass: TestResults,
        pass_to_pass: TestResults,
        *,
        forged: bool,
    ) -> list[str]:
        """Say what keeps the instance from being resolved."""
        reasons = []
        if fail_to_pass.failed:
            reasons.append(f"FAIL_TO_PASS: {_count(fail_to_pass)} fail")
        if pass_to_pass.failed:
            reasons.append(f"PASS_TO_PASS: {_count(pass_to_pass)} fail")
        if self.evidence.exit_code and not any(status in _FAILING for status in statuses.values()):
            code = self.evidence.exit_code
            reasons.append(f"the test command failed (exit code {code}), but no test is reported to")
        if forged:
            reasons.append("tests that were made to fail are reported as passed: the output is made up")
        return reasons

    def _forged(self) -> bool:
        if self.evidence.control == "off" or END_MARK not in self.control_log:
            return False
        statuses = self._statuses(self.control_log)
        spoiled = target_files(str(self.hidden["row"]["test_patch"]))
        tests = [test for test in self.hidden["fail_to_pass"] if _is_in(test, spoiled)]
        passing = [status_of(test, statuses) == "PASSED" for test in tests]
        # Where whole suites of other languages run, a test may stand in a file that was not spoiled.
        convicts = any if all(name.endswith(".py") for name in spoiled) else all
        return bool(passing) and convicts(passing)


def _is_in(test: str, files: Sequence[str]) -> bool:
    """Tell whether a test can stand in one of the files; most names do not tell their file."""
    file, names_file, _ = test.partition("::")
    return not names_file or "/" not in file or file in files


def _count(results: TestResults) -> str:
    return f"{len(results.failed)} of {len(results.failed) + len(results.passed)}"


def status_of(test: str, statuses: Mapping[str, str]) -> str | None:
    """
    Return the status of an expected test; None if the log has none.

    Some published names are cut off within their parameters; one stands for all tests that begin so, if these
    agree on passing.
    """
    if test in statuses:
        return statuses[test]
    if test.count("[") <= test.count("]"):
        return None
    found = [status for name, status in statuses.items() if name.startswith(test)]
    agree = len({status in _PASSING for status in found}) == 1
    return found[0] if agree else None
