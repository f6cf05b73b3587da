"""The key stays out of every byte that is written, whoever echoes it."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest

from agentcompass.errors import HarnessError
from agentcompass.protocols import Message, Outcome, Trial
from agentcompass.records import NoteStep

from .lab import CANARY, Lab, files_with

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.parametrize(
    "form",
    [CANARY, base64.b64encode(f"Bearer {CANARY}".encode()).decode(), quote(CANARY + "/x")],
    ids=["raw", "base64", "percent"],
)
async def test_key_is_in_no_file(lab: Lab, form: str) -> None:
    """Echoed by the answer, a step, an artifact, a stop reason and an error, the key is scrubbed."""

    async def agent(trial: Trial) -> Outcome:
        await trial.model.complete([Message(role="user", content=f"my key is {form}")])
        trial.trajectory.add(NoteStep(text=f"env: KEY={form}"))
        if trial.task.id == "t0001":
            raise HarnessError(f"401: {form}")
        return Outcome(answer=form, artifacts={"log": f"key={form}".encode()}, stop_reason=f"got {form}")

    await lab.run(
        agent,
        needs_model=True,
        model="m",
        model_api_key=CANARY,
        model_api_protocol="scripted",
        model_params={"script": lambda messages: form},
        file_log_level="DEBUG",
        resumable=False,
    )
    assert not files_with(CANARY, lab.results_dir)
    assert not files_with(form, lab.results_dir)
    assert files_with("[secret]", lab.results_dir)
