"""
What we take from the official ``swebench`` package: evaluation scripts, log parsers and its report.

Version 4 knows how each repository is tested and takes rows of the classic schema. Since version 5 the rows
bring that themselves (``eval_script``, ``log_parser``, ``eval_type``), and the package knows no repository.
Importing it takes more than a second, so this runs in worker processes only.
"""

from __future__ import annotations

import pkgutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Literal

from ...errors import ConfigError, VerifierError
from .rows import Row

WORKDIR = "/testbed"
"""Where the repository is in every image of the family."""
_ENVIRONMENT = "testbed"

EvalType = Literal["pass_and_fail", "fail_only"]
Parser = Callable[[str, Any], dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TestPlan:
    """
    How one instance is tested.

    Args:
        script: The evaluation script, for bash.
        parser: Name of the function that reads its log.
        eval_type: ``fail_only``: a test fails only if the log says so.
    """

    __test__ = False  # no test class, whatever pytest thinks of its name

    script: str
    parser: str
    eval_type: EvalType


def plan_tests(row: Row) -> TestPlan:
    """
    Say how a row is tested.

    Raises:
        ConfigError: The package is missing, or does not know this repository, version or parser.
    """
    if row.text("eval_script") and row.text("log_parser"):
        plan = TestPlan(
            script=row.text("eval_script"),
            parser=row.text("log_parser"),
            eval_type="fail_only" if row.text("eval_type") == "fail_only" else "pass_and_fail",
        )
    else:
        plan = _plan_of_classic_row(row)
    if plan.parser not in parsers():
        raise ConfigError(
            f"{row.place}: the installed swebench has no log parser {plan.parser!r}; "
            "try another version of it (pip install -U swebench)"
        )
    return plan


def _plan_of_classic_row(row: Row) -> TestPlan:
    constants = _import("swebench.harness.constants")
    specs = getattr(constants, "MAP_REPO_VERSION_TO_SPECS", None)
    if specs is None:
        raise ConfigError(
            f"{row.place}: has no eval_script and log_parser, and the installed swebench does not know how "
            "repositories are tested: pip install 'swebench>=4.1,<5', or take rows that bring these fields"
        )
    repo, version = row.text("repo"), row.text("version")
    if version not in specs.get(repo, {}):
        raise ConfigError(
            f"{row.place}: swebench does not know how version {version!r} of {repo!r} is tested; "
            "give the row eval_script (a bash script) and log_parser (a parser's name in swebench)"
        )
    scripts = _import("swebench.harness.test_spec.create_scripts")
    lines = scripts.make_eval_script_list(
        row.values,
        specs[repo][version],
        _ENVIRONMENT,
        WORKDIR,
        row.text("base_commit"),
        row.text("test_patch"),
    )
    parser = _import("swebench.harness.log_parsers").MAP_REPO_TO_PARSER[repo]
    return TestPlan(
        script="\n".join(["#!/bin/bash", "set -uxo pipefail", *lines]) + "\n",
        parser=parser.__name__,
        eval_type="fail_only" if repo in constants.FAIL_ONLY_REPOS else "pass_and_fail",
    )


@cache
def parsers() -> Mapping[str, Parser]:
    """Return the log parsers of the installed package by name."""
    package = _import("swebench.harness.log_parsers")
    registry: Mapping[str, Parser] | None = getattr(package, "PARSER_REGISTRY", None)
    if registry is not None:
        return registry
    return {
        name: function
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        for name, function in vars(import_module(module.name)).items()
        if name.startswith("parse_log_")
    }


def is_resolved(hidden: Mapping[str, Any], log: str, statuses: Mapping[str, str]) -> bool:
    """
    Let the package's own report function judge a log.

    Args:
        hidden: Of the task.
        statuses: What its parser made of the log, for versions of the package whose report function does
            not take this repository.
    """
    grading = _import("swebench.harness.grading")
    spec = _test_spec(hidden)
    if spec is None:
        expected = {"FAIL_TO_PASS": hidden["fail_to_pass"], "PASS_TO_PASS": hidden["pass_to_pass"]}
        kind = _import("swebench.harness.constants").EvalType(hidden["eval_type"])
        tests = grading.get_eval_tests_report(dict(statuses), expected, eval_type=kind)
        return bool(grading.get_resolution_status(tests) == "RESOLVED_FULL")
    instance_id = hidden["row"]["instance_id"]
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".log") as file:
        file.write(log)
        file.flush()
        prediction = {"instance_id": instance_id, "model_name_or_path": "", "model_patch": "-"}
        try:
            verdict = grading.get_eval_report(spec, prediction, file.name, include_tests_status=False)
        except Exception as error:  # whatever a foreign parser stumbles over says nothing about the answer
            raise VerifierError(f"the official report failed: {type(error).__name__}: {error}") from error
    return bool(verdict[instance_id]["resolved"])


def parser_context(hidden: Mapping[str, Any]) -> Any:
    """Return what parsers get besides the log."""
    return _test_spec(hidden) or SimpleNamespace(**{"version": "", **hidden["row"]})


def _test_spec(hidden: Mapping[str, Any]) -> Any:
    """Build the package's own description of an instance; None where it takes only repositories it knows."""
    row = hidden["row"]
    common = {
        "instance_id": row["instance_id"],
        "repo": row["repo"],
        "version": row.get("version") or "",
        "FAIL_TO_PASS": hidden["fail_to_pass"],
        "PASS_TO_PASS": hidden["pass_to_pass"],
    }
    constants = _import("swebench.harness.constants")
    specs = getattr(constants, "MAP_REPO_VERSION_TO_SPECS", None)
    if specs is None:
        return _import("swebench.types").TestSpec(
            **common,
            image="",
            eval_script_list=[],
            log_parser=hidden["parser"],
            eval_type=hidden["eval_type"],
        )
    if common["version"] not in specs.get(common["repo"], {}):
        return None
    return _import("swebench.harness.test_spec.test_spec").TestSpec(
        **common,
        repo_script_list=[],
        eval_script_list=[],
        env_script_list=[],
        arch="x86_64",
        language=constants.MAP_REPO_TO_EXT[common["repo"]],
        docker_specs={},
        namespace=None,
    )


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"grading SWE-bench needs the official package ({error}): pip install 'agentcompass[swebench]'"
        ) from error
