"""Turn records into JSON whatever a model, an agent or a verifier put into them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from ..records import TrialRecord

_MAX_DEPTH = 100
_ENCODER = msgspec.json.Encoder(enc_hook=str)


def to_json(value: msgspec.Struct) -> bytes:
    """
    Encode a record as strict JSON on one line.

    Lone surrogates become U+FFFD, non-finite numbers null, objects that JSON does not know their text,
    and what is nested too deeply a mark.
    """
    try:
        return _ENCODER.encode(value)
    except (UnicodeEncodeError, TypeError, RecursionError):
        return _ENCODER.encode(_plain(value, depth=0))


def _plain(value: Any, *, depth: int) -> Any:  # any value that a component put into a record
    match value:
        case None | bool() | int() | float():
            return value
        case _ if depth > _MAX_DEPTH:
            return "[nested too deeply]"
        case msgspec.Struct():
            return _plain(_fields(value), depth=depth)
        case Mapping():
            return {_whole_characters(str(key)): _plain(item, depth=depth + 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item, depth=depth + 1) for item in value]
        case _:
            return _whole_characters(str(value))


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    config = record.__struct_config__
    tag = {config.tag_field: config.tag} if config.tag_field else {}
    return tag | msgspec.structs.asdict(record)


def _whole_characters(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def with_finite_numbers(record: TrialRecord) -> TrialRecord:
    """
    Drop NaN and infinities from a record.

    JSON has no word for them: they would come back as null, which a metric or a duration must not be.
    """
    usage, timings = record.usage, record.timings
    seconds = (timings.queued, timings.open, timings.agent, timings.verify, timings.total)
    numbers = (record.score or 0.0, usage.cost_usd or 0.0, *record.metrics.values(), *seconds)
    if math.isfinite(sum(numbers)):  # one non-finite term makes the sum non-finite
        return record
    return msgspec.structs.replace(
        record,
        score=_finite(record.score),
        metrics={name: value for name, value in record.metrics.items() if math.isfinite(value)},
        usage=msgspec.structs.replace(usage, cost_usd=_finite(usage.cost_usd)),
        timings=type(timings)(
            **{name: _finite(value) or 0.0 for name, value in msgspec.structs.asdict(timings).items()}
        ),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
