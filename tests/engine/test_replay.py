"""Recorded answers are handed in again, from predictions files and from earlier runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from anyio import to_thread
from pydantic import ValidationError

from agentcompass.engine.replay import ReplayHarness, ReplayParams, read_predictions
from agentcompass.errors import ConfigError, SessionError
from agentcompass.protocols import Outcome, Trial
from agentcompass.records import OutcomeClass

from .lab import Lab, trials


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "p.jsonl",
            '{"instance_id": "a", "model_patch": "x"}\n\n{"instance_id": "b", "model_patch": null}\n',
        ),
        ("p.json", '[{"instance_id": "a", "model_patch": "x"}, {"instance_id": "b"}]'),
        ("p.json", '{"a": {"instance_id": "a", "model_patch": "x"}, "b": {"instance_id": "b"}}'),
    ],
)
def test_every_form_of_a_predictions_file_is_read(tmp_path: Path, name: str, content: str) -> None:
    """Lines, a list, or an object by id; a null patch is no prediction."""
    (tmp_path / name).write_text("\ufeff" + content)
    assert read_predictions(tmp_path / name) == {"a": "x", "b": None}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.jsonl", None, "No such file"),
        ("p.jsonl", "", "there is no prediction"),
        ("p.jsonl", "{", r"p\.jsonl:1: "),
        ("p.jsonl", "[]", "must be an object with a text instance_id"),
        ("p.jsonl", '{"instance_id": 3}', "must be an object with a text instance_id"),
        ("p.jsonl", '{"instance_id": "a", "model_patch": 3}', "model_patch must be a text or null"),
        (
            "p.jsonl",
            '{"instance_id": "a"}\n{"instance_id": "a"}',
            r":2: there is a prediction for 'a' already",
        ),
        ("p.json", "3", "must hold a list or an object"),
    ],
)
def test_wrong_predictions_are_named(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    """File and place stand in the message."""
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message):
        ReplayHarness(ReplayParams(predictions=tmp_path / name))


@pytest.mark.parametrize("fields", [{}, {"predictions": Path("a"), "run_dir": Path("b")}])
def test_exactly_one_source_is_named(fields: dict[str, Path]) -> None:
    """Neither none nor both."""
    with pytest.raises(ValidationError, match="either predictions or run_dir"):
        ReplayParams(**fields)


def test_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    """As everywhere."""
    with pytest.raises(ConfigError, match="is not a run directory"):
        ReplayHarness(ReplayParams(run_dir=tmp_path))


@pytest.mark.anyio
@pytest.mark.slow
async def test_earlier_run_is_graded_again(lab: Lab) -> None:
    """Answers and artifacts come attempt by attempt; what the run lacks is missing data."""

    async def agent(trial: Trial) -> Outcome:
        answer = "ok" if trial.attempt == 1 else "wrong"
        return Outcome(answer=answer, artifacts={"note": f"{trial.task.id} {trial.attempt}".encode()})

    first = await lab.run(agent, benchmark_params={"tasks": 2}, k=2)
    assert first.paths is not None
    assert first.metrics is not None
    again = await lab.run(
        harness="replay",
        harness_params={"run_dir": first.paths.run_dir},
        benchmark_params={"tasks": 3},
        k=2,
        max_retries=0,
        resumable=False,
    )
    found = {(record.task_id, record.attempt): record for record in trials(again)}
    for record in trials(first):
        assert found[record.task_id, record.attempt].score == record.score
        assert found[record.task_id, record.attempt].stop_reason == "replayed"
    lacking = [record for record in found.values() if record.outcome is OutcomeClass.INFRA_ERROR]
    assert len(lacking) == 2
    assert lacking[0].failure is not None
    assert "has no finished attempt" in lacking[0].failure.message
    assert again.paths is not None
    kept = await to_thread.run_sync(lambda: list(Path(again.paths.artifacts).rglob("note")))  # type: ignore[union-attr]
    assert len(kept) == 4


@pytest.mark.anyio
@pytest.mark.slow
async def test_what_infrastructure_has_lost_stays_missing(lab: Lab) -> None:
    """An attempt that never came to an answer is no empty answer."""

    async def agent(trial: Trial) -> Outcome:
        raise SessionError("the machine died", retryable=False)

    first = await lab.run(agent, benchmark_params={"tasks": 1}, max_retries=0, resumable=False)
    assert first.paths is not None
    again = await lab.run(
        harness="replay",
        harness_params={"run_dir": first.paths.run_dir},
        benchmark_params={"tasks": 1},
        max_retries=0,
        resumable=False,
    )
    [record] = trials(again)
    assert record.outcome is OutcomeClass.INFRA_ERROR
    assert record.failure is not None
    assert "before anything was handed in" in record.failure.message


@pytest.mark.anyio
@pytest.mark.slow
async def test_tasks_without_a_prediction_hand_in_nothing(lab: Lab, tmp_path: Path) -> None:
    """They count as failed, as the official harness has it."""
    file = tmp_path / "p.jsonl"
    await to_thread.run_sync(file.write_text, json.dumps({"instance_id": "t0000", "model_patch": "ok"}))
    result = await lab.run(
        harness="replay", harness_params={"predictions": file}, benchmark_params={"tasks": 2}
    )
    reasons = {record.task_id: record.stop_reason for record in trials(result)}
    assert reasons == {"t0000": "replayed", "t0001": "no prediction"}
    assert result.metrics is not None
    assert result.metrics.score.evaluated == 2
