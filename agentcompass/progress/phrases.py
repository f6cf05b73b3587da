"""Say where a request stands in a few words; every display puts its lines together from these."""

from __future__ import annotations

from collections.abc import Mapping

from .tally import Standing
from .text import show

_PHASES = "plan open prepare agent verify close"
_FAILURES_SHOWN = 3
_ID_CELLS = 40
_ERROR_CELLS = 200


def duration(seconds: float) -> str:
    """Return e.g. ``8s``, ``2m05s``, ``3h20m`` or ``2d04h``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def amount(number: float) -> str:
    """Return e.g. ``950``, ``12.3k`` or ``4.5M``."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"


def rate(per_second: float) -> str:
    """Return e.g. ``12/s``, ``4.5/min`` or ``2.0/h``."""
    for per, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if per_second * per >= 1 or unit == "h":
            break
    value = per_second * per
    return f"{value:.0f}/{unit}" if value >= 10 else f"{value:.1f}/{unit}"


def percent(standing: Standing) -> int:
    """Return how much is done, rounded down so that 100 means all."""
    return min(100, 100 * standing.done // standing.attempts) if standing.attempts else 0


def pace(standing: Standing) -> list[str]:
    """Return rate and time left, as far as known."""
    words = [] if standing.rate is None else [rate(standing.rate)]
    if standing.eta_seconds is not None:
        words.append(f"eta {duration(standing.eta_seconds)}")
    return words


def score(standing: Standing) -> str:
    """Return the mean with its uncertainty."""
    if standing.score is None:
        return "no score" if standing.status != "running" else "no score yet"
    if standing.interval is None:
        return f"score {standing.score:.3f}"
    low, high = standing.interval
    return f"score {standing.score:.3f} [{low:.2f}, {high:.2f}]"


def troubles(standing: Standing) -> list[str]:
    """Return retries and failures by class, if there are any; the longest words last."""
    words = [_count(standing.retries, "retry", "retries")] if standing.retries else []
    if failed := sum(standing.failures.values()):
        words.append(f"{failed} failed: {_breakdown(_most(standing.failures))}")
    return words


def running(standing: Standing) -> str:
    """Return how many trials are live, by phase."""
    live = sum(standing.running.values())
    if not live:
        return "nothing running"
    in_order = sorted(standing.running.items(), key=lambda item: _PHASES.find(item[0]))
    return f"{live} running: {_breakdown(in_order)}"


def consumption(standing: Standing) -> list[str]:
    """Return tokens and cost, as far as known."""
    usage = standing.usage
    tokens = usage.input_tokens + usage.output_tokens
    words = [f"{amount(tokens)} tokens"] if tokens else []
    if usage.cost_usd is not None:
        words.append(f"${usage.cost_usd:.2f}")
    return words


def oldest(standing: Standing) -> str:
    """Name the trial that has been running longest; empty if none is."""
    trial = standing.oldest
    if trial is None:
        return ""
    since = f"oldest {show(trial.task_id, _ID_CELLS)} #{trial.attempt}"
    words = f"{since}: {show(trial.phase, 20)} for {duration(trial.phase_seconds)}"
    if trial.steps:
        words = f"{words}, {_count(trial.steps, 'step', 'steps')}"
    if duration(trial.phase_seconds) == duration(trial.total_seconds):
        return words
    return f"{words}, {duration(trial.total_seconds)} in all"


def outage(standing: Standing) -> str:
    """Say what keeps the request down; empty if nothing does."""
    if not standing.outage:
        return ""
    return (
        f"paused by an outage for {duration(standing.outage_seconds)}: {show(standing.outage, _ERROR_CELLS)}"
    )


def start(standing: Standing) -> list[str]:
    """Say what is going to be done."""
    words = [_count(standing.attempts, "attempt", "attempts")]
    return [*words, f"{standing.kept} kept"] if standing.kept else words


def end(standing: Standing) -> list[str]:
    """Say how it ended: status, time and what was covered, then the score."""
    how = "stopped after" if standing.status == "running" else f"{show(standing.status, 20)} in"
    how = f"{how} {duration(standing.elapsed_seconds)}"
    return [how, f"{standing.done}/{standing.attempts} attempts", score(standing)]


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    rest = sum(count for _, count in ranked[_FAILURES_SHOWN:])
    return [*ranked[:_FAILURES_SHOWN], ("other", rest)] if rest else ranked


def _breakdown(counts: list[tuple[str, int]]) -> str:
    if len(counts) == 1:
        return show(counts[0][0], _ID_CELLS)
    return ", ".join(f"{count} {show(kind, _ID_CELLS)}" for kind, count in counts)
