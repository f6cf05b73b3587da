"""What is refused when a model is opened."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from agentcompass.errors import ConfigError
from agentcompass.llm.client import open_model
from agentcompass.llm.endpoint import Endpoint
from agentcompass.protocols import Message, Reply
from agentcompass.records import Usage

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"protocol": "openai_chat"},
            r"did you mean 'openai-chat'\? \(available: anthropic, openai-chat, openai-responses, scripted\)",
        ),
        ({"protocol": "bedrock"}, "available: anthropic, openai-chat, openai-responses, scripted"),
        ({"base_url": ""}, "must start with http"),
        ({"base_url": "localhost:8000/v1"}, "must start with http"),
        ({"base_url": "user:canary@host/v1"}, "must start with http"),
        ({"base_url": "http://"}, "must start with http"),
        ({"base_url": "http://[::1/v1"}, "no valid URL"),
        ({"base_url": "http://user:canary@host/v1"}, "give them as the API key"),
        ({"api_key": SecretStr("canary\n")}, "no header can carry"),
        ({"api_key": SecretStr("canary\u00e9")}, "no header can carry"),
        ({"params": {"messages": []}}, "may not hold 'messages'"),
        ({"protocol": "anthropic", "params": {"messages": []}}, "may not hold 'messages'"),
        ({"protocol": "openai-responses", "params": {"input": []}}, "may not hold 'input'"),
        ({"params": {"stream": True}}, "may not ask for 'stream'"),
        ({"params": {"seed": object()}}, "cannot be sent as JSON"),
    ],
)
async def test_wrong_endpoint_is_refused_before_any_call(fields: dict[str, Any], message: str) -> None:
    """The error names the mistake and the way out, but no secret."""
    settings = {"model_id": "m", "protocol": "openai-chat", "base_url": "http://127.0.0.1:9/v1"}
    with pytest.raises(ConfigError, match=message) as caught:
        async with open_model(Endpoint(**(settings | fields))):
            pass
    assert "canary" not in str(caught.value)


async def test_model_has_the_id_of_its_endpoint() -> None:
    """Harnesses show it."""
    endpoint = Endpoint(model_id="org/m", protocol="openai-chat", base_url="http://127.0.0.1:9/v1")
    async with open_model(endpoint) as model:
        assert model.id == "org/m"


PRICES = {"input": 3.0, "output": 15.0, "cached": 0.3}


@pytest.mark.parametrize(
    ("prices", "usage", "cost"),
    [
        (PRICES, Usage(input_tokens=1_000_000, output_tokens=100_000), 4.5),
        (PRICES, Usage(input_tokens=1_000_000, cached_tokens=500_000), 1.65),
        ({"input": 3.0, "output": 15.0}, Usage(input_tokens=1_000_000, cached_tokens=500_000), 3.0),
        (PRICES, Usage(input_tokens=1_000_000, cached_tokens=500_000, cache_write_tokens=100_000), 1.65),
        (
            PRICES | {"cache_write": 3.75},
            Usage(input_tokens=1_000_000, cached_tokens=500_000, cache_write_tokens=100_000),
            1.725,
        ),
        (PRICES, Usage(input_tokens=1_000_000, cost_usd=0.5), 0.5),
        ({}, Usage(input_tokens=1_000_000), None),
    ],
)
async def test_calls_are_priced(prices: dict[str, float], usage: Usage, cost: float | None) -> None:
    """By the prices given, unless the endpoint tells the cost; without prices it is unknown, not zero."""
    spent: list[Usage] = []
    endpoint = Endpoint(
        model_id="m",
        protocol="scripted",
        params={"script": lambda _messages: Reply(text="", usage=usage)},
        prices=prices,
    )
    async with open_model(endpoint) as model:
        reply = await model.complete([Message(role="user", content="x")], on_call=spent.append)
    assert reply.usage.cost_usd == pytest.approx(cost)
    assert [item.cost_usd for item in spent] == [pytest.approx(cost)]
