"""Where a model is reached and how long its calls may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from pydantic import SecretStr

from ..records import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """
    A model behind an endpoint.

    Args:
        model_id: The model's id, as the endpoint knows it.
        protocol: One of ``client.PROTOCOL_IDS``.
        base_url: What the protocol's path is appended to, e.g. ``http://localhost:8000/v1``.
        api_key: Sent in the header of the protocol; None or empty sends none.
        params: Put into every request; may override anything but the conversation.
        prices: USD per million tokens by kind: ``input``, ``output``, ``cached`` (read from a cache) and
            ``cache_write``; empty if unknown.
        max_retries: How many further tries a call gets when a retry can help.
        connect_timeout_seconds: The longest that opening a connection may take.
        idle_timeout_seconds: The longest silence between two bytes from the endpoint.
        total_timeout_seconds: The longest that one try may take.
    """

    model_id: str
    protocol: str
    base_url: str = ""
    api_key: SecretStr | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    max_retries: int = 4
    connect_timeout_seconds: float = 10.0
    idle_timeout_seconds: float = 300.0
    total_timeout_seconds: float = 1800.0

    def priced(self, usage: Usage) -> Usage:
        """Return the usage with its cost, unless the endpoint told it or no prices are known."""
        prices = self.prices
        if not prices or usage.cost_usd is not None:
            return usage
        plain = prices["input"]
        read, written = usage.cached_tokens, usage.cache_write_tokens
        cost = max(0, usage.input_tokens - read - written) * plain
        cost += read * prices.get("cached", plain) + written * prices.get("cache_write", plain)
        cost += usage.output_tokens * prices["output"]
        return msgspec.structs.replace(usage, cost_usd=cost / 1e6)
