from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest

from agentcompass.records import Detail, Timings, TrialRecord, Usage
from agentcompass.store.encode import to_json, with_finite_numbers

from .examples import trial

_NAN, _INF = math.nan, math.inf
_CYCLE: list[Any] = []
_CYCLE.append(_CYCLE)


@pytest.mark.parametrize(
    "odd",
    [
        "\ud800 alone",
        {"\udc00": 1},
        {(1, 2): "tuple key", None: 1},
        object,
        _CYCLE,
        {"nan": _NAN, "inf": [-_INF]},
        b"\xff\x00",
        2**70,
        {1, 2},
        ValueError("\ud800"),
    ],
    ids=repr,
)
def test_evidence_of_any_kind_becomes_strict_json(odd: Any) -> None:
    """What a verifier hands over is stored as valid JSON, however strange it is; the rest is intact."""
    data = to_json(Detail(task_id="t", attempt=1, trial=1, answer="ok", verifier_output={"odd": odd}))

    json.loads(data, parse_constant=pytest.fail)
    assert msgspec.json.decode(data, type=Detail).answer == "ok"


def test_a_record_with_lone_surrogates_is_readable() -> None:
    """Half a character becomes the replacement character; tagged fields survive."""
    record = msgspec.structs.replace(trial(), stop_reason="\ud83d\ude00 \ud800")
    again = msgspec.json.decode(to_json(record), type=TrialRecord)
    assert again == msgspec.structs.replace(record, stop_reason="\U0001f600 \ufffd")


@pytest.mark.parametrize("bad", [_NAN, _INF, -_INF])
def test_numbers_that_are_none_never_reach_the_record(bad: float) -> None:
    """Non-finite numbers count as not measured, before and after a round trip alike."""
    record = msgspec.structs.replace(
        trial(),
        score=bad,
        metrics={"bad": bad, "good": 1.0},
        usage=Usage(cost_usd=bad),
        timings=Timings(agent=bad, total=2.0),
    )
    clean = with_finite_numbers(record)

    assert (clean.score, clean.metrics, clean.usage.cost_usd) == (None, {"good": 1.0}, None)
    assert clean.timings == Timings(agent=0.0, total=2.0)
    assert msgspec.json.decode(to_json(clean), type=TrialRecord) == clean


def test_finite_records_are_passed_on_as_they_are() -> None:
    """Nothing is copied without need."""
    record = trial()
    assert with_finite_numbers(record) is record
