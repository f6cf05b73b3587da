"""The pages as text: links, copies of the examples, and facts that must follow the code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import get_args

import click
import msgspec
import pytest

from agentcompass import records
from agentcompass.llm.scripted import ScriptLine

from . import options
from .markdown import PAGES, ROOT, anchors, blocks, headings, links
from .update import shown_file, updated

DOCS = ROOT / "docs"
STRUCTS = [
    records.TrialRecord,
    records.PlanRecord,
    records.Failure,
    records.Timings,
    records.Detail,
    records.ModelStep,
    records.CommandStep,
    records.NoteStep,
    records.ComponentRecord,
    records.ModelRecord,
    records.RunRecord,
    records.Estimate,
    records.Counts,
    records.Metrics,
    *get_args(records.ProgressEvent),
]
AUDIT_STRUCTS = [
    records.AuditRecord,
    records.ControlRun,
    records.TaskAudit,
    records.Finding,
    records.MissingTrial,
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """A link inside the repository names a file that exists and, after ``#``, one of its headings."""
    for target in links(page):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        other = (page.parent / file).resolve() if file else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shown_examples_are_the_files_that_are_tested(page: Path) -> None:
    """A page repeats its examples to the letter; ``python -m tests.docs.update`` copies them."""
    assert updated(page) == page.read_text("utf-8")


def test_every_example_is_shown() -> None:
    """No example is there that no page explains."""
    shown = {shown_file(block) for page in PAGES for block in blocks(page)} - {None}
    assert {path.resolve() for path in shown if path} == set((DOCS / "examples").resolve().glob("*.py"))


def test_options_page_is_up_to_date() -> None:
    """``python -m tests.docs.update`` was run after the last change of an option."""
    assert options.PAGE.read_text("utf-8") == options.render()


def test_every_option_of_the_command_line_is_documented() -> None:
    """Nothing can be typed that the page does not explain."""
    text = options.PAGE.read_text("utf-8")
    for command in options.commands().values():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert all(f"`{name}`" in text for name in parameter.opts + parameter.secondary_opts)


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_field_on_disk_is_documented(struct: type[msgspec.Struct]) -> None:
    """What a reader meets in a file is explained."""
    text = (DOCS / "results.md").read_text("utf-8")
    assert [name for name in struct.__struct_fields__ if f"`{name}`" not in text] == []


@pytest.mark.parametrize("struct", AUDIT_STRUCTS, ids=lambda struct: struct.__name__)
def test_every_field_of_an_audit_is_documented(struct: type[msgspec.Struct]) -> None:
    """And so is every kind of finding."""
    text = (DOCS / "audit.md").read_text("utf-8")
    names = [*struct.__struct_fields__, *get_args(records.FindingKind)]
    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.parametrize("outcome", [*records.OutcomeClass, *records.RunStatus])
def test_every_outcome_and_status_is_documented(outcome: str) -> None:
    """So is every way to end."""
    assert f"`{outcome}`" in (DOCS / "results.md").read_text("utf-8")


@pytest.mark.parametrize("struct", [ScriptLine, records.Usage], ids=lambda struct: struct.__name__)
def test_every_field_of_a_script_is_documented(struct: type[msgspec.Struct]) -> None:
    """Whatever a line of a script may hold is explained."""
    text = (DOCS / "models.md").read_text("utf-8")
    assert [name for name in struct.__struct_fields__ if f"`{name}`" not in text] == []


def test_readme_is_short() -> None:
    """It is the page that everybody reads."""
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 180


# --- messages ---------------------------------------------------------------------------------------


@cache
def message_patterns() -> list[re.Pattern[str]]:
    """Return a pattern for every text in the package that has some words of its own."""
    found = []
    for module in (ROOT / "agentcompass").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            parts = literal_parts(node)
            if len("".join(parts)) >= 12:
                found.append(re.compile(".*".join(map(re.escape, parts)), re.S))
    return found


def literal_parts(node: ast.AST) -> list[str]:
    """Split a text at its placeholders."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            texts = (value.value if isinstance(value, ast.Constant) else "\0" for value in values)
            return "".join(map(str, texts)).split("\0")
    return []


MESSAGES = [heading.strip("`") for heading in headings(DOCS / "troubleshooting.md") if heading[0] == "`"]


@pytest.mark.parametrize("message", MESSAGES)
def test_explained_message_exists(message: str) -> None:
    """Each message of the page is one that the code can show."""
    assert any(pattern.fullmatch(message.strip("…")) for pattern in message_patterns()), message
