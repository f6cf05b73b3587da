"""Keep the keys of a specification out of what commands print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..store.scrub import Scrubber

if TYPE_CHECKING:
    from ..spec.orchestration import OrchestrationSpec


def scrubber_of(spec: OrchestrationSpec) -> Scrubber:
    """Return what removes every key that a specification holds."""
    keys = [request.model.key for request in spec.requests if request.model is not None]
    return Scrubber([key.get_secret_value() for key in keys if key is not None])


def without_secrets(value: dict[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    """Return plain data without the keys."""
    clean: dict[str, Any] = json.loads(scrubber.scrub_json(json.dumps(value).encode()))
    return clean
