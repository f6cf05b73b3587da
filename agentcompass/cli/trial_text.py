"""One trial as text for a person; what models and agents wrote is shown literally."""

from __future__ import annotations

from collections.abc import Iterator

from ..progress.phrases import duration
from ..progress.text import show
from ..records import CommandStep, Detail, Failure, ModelStep, NoteStep, Step, TrialRecord, Usage


def trial_lines(record: TrialRecord, detail: Detail | str) -> Iterator[str]:
    """
    Yield the lines about a trial.

    Args:
        detail: Its evidence, or why there is none.
    """
    yield _head(record)
    match detail:
        case Detail():
            yield from _evidence(record, detail)
        case reason:
            yield f"  {show(reason)}"
    if record.failure is not None:
        yield from _failure(record.failure)
    if record.usage != Usage():
        yield from _block("usage", _usage(record.usage))


def _head(record: TrialRecord) -> str:
    words = [f"{show(record.task_id)} · attempt {record.attempt} · trial {record.trial}", str(record.outcome)]
    if record.score is not None:
        words.append(f"score {record.score:.3f}")
    if record.stop_reason:
        words.append(f"stopped: {show(record.stop_reason)}")
    if record.discarded:
        words.append("repeated later")
    if record.reused_from:
        words.append(f"reused from {show(record.reused_from)}")
    return " · ".join([*words, duration(record.timings.total)])


def _evidence(record: TrialRecord, detail: Detail) -> Iterator[str]:
    yield from _block("prompt", detail.prompt)
    for number, step in enumerate(detail.steps, start=1):
        yield from _step(number, step)
    yield from _block("answer", "(none)" if detail.answer is None else detail.answer)
    yield from _block("verdict", detail.verdict)
    metrics = [f"{name} {value:g}" for name, value in record.metrics.items()]
    outputs = [f"{name}: {value}" for name, value in detail.verifier_output.items()]
    yield from _block("metrics", "\n".join(metrics))
    yield from _block("verifier", "\n".join(outputs))
    yield from _block("artifacts", "\n".join(f"{name}: {path}" for name, path in detail.artifacts.items()))


def _step(number: int, step: Step) -> Iterator[str]:
    match step:
        case ModelStep():
            calls = [f"{call.name}({call.arguments})" for call in step.tool_calls]
            title = f"step {number}: model, {duration(step.duration_seconds)}"
            yield from _parts(title, [("reasoning", step.reasoning), ("", step.text), ("error", step.error)])
            yield from (f"    calls {show(call)}" for call in calls)
        case CommandStep():
            ending = "timed out" if step.timed_out else f"exit code {step.exit_code}"
            title = f"step {number}: command, {ending}, {duration(step.duration_seconds)}"
            yield from _parts(title, [("$", step.command), ("", step.stdout), ("stderr", step.stderr)])
        case NoteStep():
            yield from _parts(f"step {number}: note", [("", step.text)])


def _parts(title: str, parts: list[tuple[str, str]]) -> Iterator[str]:
    yield f"  {title}"
    for name, text in parts:
        prefix = f"{name} " if name else ""
        yield from (f"    {prefix}{line}" for line in _literal_lines(text))


def _failure(failure: Failure) -> Iterator[str]:
    text = f"{failure.error} in the {failure.phase} phase: {failure.message}\n{failure.traceback}"
    yield from _block("failure", text)


def _usage(usage: Usage) -> str:
    cost = "cost unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
    return (
        f"{usage.calls} calls ({usage.failed_calls} failed), "
        f"{usage.input_tokens} tokens in ({usage.cached_tokens} cached), "
        f"{usage.output_tokens} out ({usage.reasoning_tokens} reasoning), {cost}"
    )


def _block(title: str, text: str) -> Iterator[str]:
    """Yield a title with its text indented below, or nothing if there is no text."""
    lines = _literal_lines(text)
    if lines:
        yield f"  {title}"
        yield from (f"    {line}" for line in lines)


def _literal_lines(text: str) -> list[str]:
    """Split at newlines only: other separators are escaped like any control character."""
    return [show(line.expandtabs()) for line in text.rstrip("\n").split("\n")] if text else []
