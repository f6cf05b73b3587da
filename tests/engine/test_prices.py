"""Prices of models: what is refused before money is spent."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from agentcompass.engine import registry
from agentcompass.engine.resolve import resolve
from agentcompass.errors import ConfigError
from agentcompass.harnesses.chat import ChatHarness, ChatParams
from agentcompass.spec.options import ModelOptions, RuntimeOptions
from agentcompass.spec.orchestration import ComponentSpec, ModelSpec, RunRequestSpec


class Limited(ChatHarness):
    needs_prices: ClassVar[bool] = True

    def __init__(self, params: ChatParams) -> None:
        super().__init__(params)


def request(**model: Any) -> RunRequestSpec:
    return RunRequestSpec(
        name="r",
        benchmark=ComponentSpec(id="humaneval"),
        harness=ComponentSpec(id="limited"),
        environment=ComponentSpec(id="local"),
        model=ModelSpec(id="acme/unlisted-1", model_api_protocol="scripted", **model),
    )


@pytest.fixture(autouse=True)
def limited_is_registered() -> Any:
    before = {key: dict(value) for key, value in registry._registered.items()}
    registry.harness("limited")(Limited)
    yield
    registry._registered.clear()
    registry._registered.update(before)


def test_cost_limit_without_prices_is_refused() -> None:
    """It could never be kept to; the message names the model and both ways out."""
    with pytest.raises(ConfigError, match=r"'acme/unlisted-1'; set model_prices.*or leave the limit out"):
        resolve(request(), RuntimeOptions())


def test_cost_limit_with_prices_is_taken() -> None:
    """The client gets them."""
    resolved = resolve(request(model_prices={"input": 1, "output": 2}), RuntimeOptions())
    assert resolved.endpoint is not None
    assert resolved.endpoint.prices == {"input": 1.0, "output": 2.0}


@pytest.mark.parametrize(
    "prices", [{"input": 1}, {"input": 1, "output": 2, "other": 3}, {"input": -1, "output": 2}]
)
def test_incomplete_prices_are_refused(prices: dict[str, float]) -> None:
    """A half price list would make costs too low."""
    with pytest.raises(ConfigError, match="model_prices"):
        ModelOptions(model_prices=prices)
