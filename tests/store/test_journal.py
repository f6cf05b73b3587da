from __future__ import annotations

import json
import random
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcompass.errors import StoreError
from agentcompass.records import JournalRecord, PlanRecord, TrialRecord
from agentcompass.store.journal import Journal, encode_line, frame_line, read_journal

from .examples import trial

_RECORDS: list[JournalRecord] = [
    PlanRecord(task_ids=["a", "b"], categories=[]),
    trial("a"),
    msgspec.structs.replace(trial("b"), stop_reason='{"crc":"00000000","record":{}}\n'),
    trial("c", attempt=2, number=3),
    trial("é"),
]
_LINES = [encode_line(record) for record in _RECORDS]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "attempts.jsonl"


def test_every_line_is_plain_json(path: Path) -> None:
    """Other tools can read a journal line by line."""
    assert [json.loads(line)["record"]["type"] for line in _LINES] == ["plan", *["trial"] * 4]
    assert all(line.count(b"\n") == 1 for line in _LINES)


def test_what_was_written_is_read(path: Path) -> None:
    """Records come back equal and in order; blank lines and foreign line ends do not matter."""
    path.write_bytes(b"\n".join(_LINES).replace(b"\n\n", b"\r\n\n"))
    reader = read_journal(path)
    assert list(reader) == _RECORDS
    assert (reader.damaged_lines, reader.unknown_records) == (0, 0)


def test_a_journal_cut_at_any_byte_keeps_the_lines_before_the_cut(path: Path) -> None:
    """A crash at any moment loses the line that was being written, and no other."""
    whole = b"".join(_LINES)
    ends = [len(b"".join(_LINES[: n + 1])) - 1 for n in range(len(_LINES))]
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert list(read_journal(path)) == _RECORDS[: sum(end <= cut for end in ends)]


def test_a_damaged_byte_costs_at_most_its_own_line(path: Path) -> None:
    """Whichever byte is hit, and whatever it becomes, all other records are still read."""
    whole = b"".join(_LINES)
    chance = random.Random(7)
    for at in range(len(whole)):
        changed = chance.choice([0, 10, 34, 92, 125, 255, whole[at] ^ 1])
        path.write_bytes(whole[:at] + bytes([changed]) + whole[at + 1 :])
        found = list(read_journal(path))
        hit = whole[:at].count(b"\n")
        assert [record for record in found if record != _RECORDS[hit]] == _RECORDS[:hit] + _RECORDS[hit + 1 :]


def test_damaged_lines_are_counted(path: Path) -> None:
    """The reader says how much it could not use."""
    path.write_bytes(b"\x00" * 100 + b"\n" + _LINES[1] + b"{}\n" + _LINES[3].replace(b"0.5", b"1.0"))
    reader = read_journal(path)
    assert list(reader) == [_RECORDS[1]]
    assert reader.damaged_lines == 3
    assert list(reader) == [_RECORDS[1]]
    assert reader.damaged_lines == 3


def test_records_of_a_newer_version_are_skipped_and_counted_apart(path: Path) -> None:
    """Unknown kinds are no damage, and unknown fields are ignored."""
    newer = json.loads(_LINES[1])["record"] | {"novelty": [1]}
    path.write_bytes(frame_line(b'{"type":"novelty"}') + frame_line(json.dumps(newer).encode()))
    reader = read_journal(path)
    assert list(reader) == [_RECORDS[1]]
    assert (reader.damaged_lines, reader.unknown_records) == (0, 1)


def test_appending_after_a_torn_line_loses_nothing_more(path: Path) -> None:
    """The next session ends the torn line first, so that its own first record stands alone."""
    path.write_bytes(_LINES[1] + _LINES[2][:50])
    journal = Journal(str(path))
    journal.append(_LINES[3])
    journal.close()
    assert list(read_journal(path)) == [_RECORDS[1], _RECORDS[3]]
    assert path.read_bytes().splitlines(keepends=True)[-1] == _LINES[3]


def test_a_missing_journal_has_no_records(path: Path) -> None:
    """A run that died before its first record can still be summed up."""
    assert list(read_journal(path)) == []


def test_a_journal_that_cannot_be_read_is_an_error_with_its_path(path: Path) -> None:
    """A directory in its place, or a disk error, is told and not taken for an empty run."""
    path.mkdir()
    with pytest.raises(StoreError, match=r"attempts\.jsonl"):
        list(read_journal(path))


@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.floats()),
)
def test_any_record_survives_the_round_trip(text: str, metrics: dict[str, float]) -> None:
    """Texts come back exactly; metrics without the numbers that JSON cannot hold."""
    record = msgspec.structs.replace(trial(text), metrics=metrics, stop_reason=text)
    again = msgspec.json.decode(json.dumps(json.loads(encode_line(record))["record"]), type=TrialRecord)
    assert (again.task_id, again.stop_reason) == (text, text)
    assert again.metrics == {name: value for name, value in metrics.items() if abs(value) < float("inf")}


@pytest.mark.slow
def test_a_hundred_thousand_lines_are_read_quickly(path: Path) -> None:
    """Reading takes about 5 µs a line; a resume of a large run starts at once."""
    path.write_bytes(b"".join(_LINES[1:]) * 25_000)
    before = time.process_time()
    assert sum(1 for _ in read_journal(path)) == 100_000
    assert time.process_time() - before < 2.0
