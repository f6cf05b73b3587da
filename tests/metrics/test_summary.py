from __future__ import annotations

import msgspec
import pytest

from agentcompass.metrics.fold import fold
from agentcompass.metrics.summary import render_summary, score_line
from agentcompass.records import (
    ComponentRecord,
    JournalRecord,
    Metrics,
    ModelRecord,
    OutcomeClass,
    RunRecord,
    Usage,
)

from .journal import broken, pass_plan, plan, scalar, verdict

RUN = RunRecord(
    run_id="20250102T030405-abc",
    name="nightly",
    benchmark=ComponentRecord(id="humaneval", version="1.2"),
    harness=ComponentRecord(id="single_turn"),
    environment=ComponentRecord(id="local"),
    model=ModelRecord(id="org/model_a-7b"),
)


def _run_of(total: int, evaluated: int, passed: int) -> Metrics:
    tasks = [f"t{number}" for number in range(total)]
    lines: list[JournalRecord] = [
        verdict(task, passed=position < passed) for position, task in enumerate(tasks[:evaluated])
    ]
    return fold([plan(*tasks), *lines, *map(broken, tasks[evaluated:])])


def test_score_line_tells_value_interval_coverage_and_bounds() -> None:
    """All that is needed to trust a score, on one line."""
    assert score_line(_run_of(164, 160, 131)) == (
        "0.819 [0.752, 0.871] · 160/164 evaluated · bounds [0.799, 0.823]"
    )


def test_score_line_without_evaluated_attempts_says_so() -> None:
    """No score is not a score of 0."""
    assert score_line(_run_of(3, 0, 0)) == "no score"


def test_summary_names_what_ran() -> None:
    """Run, benchmark, harness, environment and model, in plain names."""
    text = render_summary(RUN, _run_of(10, 10, 5))
    assert text.startswith("# nightly\n\n- Benchmark: humaneval 1.2\n- Harness: single_turn\n")
    assert "- Model: org/model_a-7b\n" in text
    assert "20250102T030405-abc" in text
    assert f"**{score_line(_run_of(10, 10, 5))}** (avg@1)" in text


@pytest.mark.parametrize(("missing", "warns"), [(0, False), (1, False), (2, True), (10, True)])
def test_summary_warns_of_more_than_a_tenth_missing(missing: int, warns: bool) -> None:
    """One of ten may be missing; two make the score unreliable."""
    text = render_summary(RUN, _run_of(10, 10 - missing, 3 if missing < 8 else 0))
    assert ("unreliable" in text) is warns


def test_summary_reports_damaged_and_duplicate_lines() -> None:
    """Damage to the journal is said, not hidden."""
    line = verdict("a", passed=True)
    text = render_summary(RUN, fold([plan("a"), line, line], damaged_lines=2))
    assert "2 damaged lines" in text
    assert "1 duplicate lines" in text


def test_summary_says_when_the_cost_is_unknown() -> None:
    """Without a price the cost is unknown, not zero."""
    priced = broken("a", usage=Usage(calls=1, cost_usd=1.5))
    assert "Cost: unknown" in render_summary(RUN, fold([plan("a"), broken("a")]))
    assert "Cost: $1.5000" in render_summary(RUN, fold([plan("a"), priced]))


def test_summary_tabulates_categories_attempts_and_draws() -> None:
    """Each part of the metrics has its table."""
    lines = [verdict("a", passed=n == 1, attempt=n) for n in (1, 2)]
    lost = broken("b", OutcomeClass.CANCELLED)
    text = render_summary(RUN, fold([plan("a", "b", k=2, categories=["x", "y"]), *lines, lost]))
    assert "| x | 0.500 |" in text
    assert "| y | – | – | 0/2 | [0.000, 1.000] |" in text
    assert "| 2 | 1.000 | 0.000 |" in text
    assert "| cancelled | 1 |" in text
    assert "By outcome: cancelled 1, completed 2" in text


def test_summary_of_early_stop_names_the_score() -> None:
    """Any-of-k is not an average over attempts."""
    text = render_summary(RUN, fold([pass_plan("a", k=3), verdict("a", passed=True)]))
    assert "(any-of-k)" in text
    assert "until the first success" in text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a|b", "a\\|b"),
        ("a\\|b", "a\\\\\\|b"),
        ("`rm`", "\\`rm\\`"),
        ("two\nlines\r", "two\\\\nlines\\\\r"),
        ("<script>&", "&lt;script&gt;&amp;"),
        ("![x](http://y)", "\\!\\[x\\](http://y)"),
        ("**bold** _it_", "\\*\\*bold\\*\\* \\_it\\_"),
        ("snake_case-1.0", "snake_case-1.0"),
        ("\x1b[2J\u202e\ud800", "\\\\x1b\\[2J\\\\u202e\\\\ud800"),
        ("数学 é", "数学 é"),
    ],
)
def test_hostile_names_are_shown_literally(name: str, shown: str) -> None:
    """No name can break the table, start markup or HTML, or hide what it says."""
    metrics = _run_of(10, 10, 5)
    metrics = msgspec.structs.replace(metrics, categories={name: metrics.score})
    run = msgspec.structs.replace(RUN, name=name)
    lines = render_summary(run, metrics).splitlines()
    assert lines[0] == f"# {shown}"
    assert any(line.startswith(f"| {shown} | 0.500 |") for line in lines)


def test_metric_on_an_open_scale_has_no_bounds() -> None:
    """Steps or seconds show value and interval; bounds make no sense there."""
    lines = [scalar(task, 1.0, metrics={"steps": steps}) for task, steps in (("a", 10.0), ("b", 14.0))]
    text = render_summary(RUN, fold([plan("a", "b"), *lines]))
    assert "| steps | 12.000 | [-13.412, 37.412] | 2/2 | – |" in text
