"""The mock endpoint as its own process."""

from __future__ import annotations

import sys

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from agentcompass.llm.client import open_model
from agentcompass.llm.endpoint import Endpoint

from .endpoints import HELLO

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_server_process_prints_its_url_and_answers() -> None:
    """Whoever starts it reads the URL from its first line of output."""
    command = [sys.executable, "-m", "agentcompass.llm.mock_server", "--answer", "forty-two"]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout is not None
        url = (await TextReceiveStream(process.stdout).receive()).strip()
        endpoint = Endpoint(model_id="m", protocol="openai-chat", base_url=url)
        async with open_model(endpoint) as model:
            reply = await model.complete(HELLO, on_call=lambda _usage: None)
        process.terminate()
    assert reply.text == "forty-two"
