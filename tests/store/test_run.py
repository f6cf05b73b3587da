from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from agentcompass.errors import ConfigError
from agentcompass.records import Detail, TrialRecord
from agentcompass.store.encode import to_json
from agentcompass.store.journal import encode_line
from agentcompass.store.run import find_run, load_run, read_detail, readable_runs

from .examples import detail, run_record, trial


def _make_run(namespace_dir: Path, run_id: str) -> Path:
    run_dir = namespace_dir / run_id
    run_dir.mkdir(parents=True)
    (run_dir / "run.json").write_bytes(to_json(run_record(run_id)))
    return run_dir


def test_a_run_is_loaded_with_its_journal(tmp_path: Path) -> None:
    """What was written is there; the journal can be read more than once."""
    run_dir = _make_run(tmp_path, "one")
    (run_dir / "attempts.jsonl").write_bytes(encode_line(trial("a")) + encode_line(trial("b")))
    run = load_run(run_dir)

    assert run.record == run_record("one")
    assert [record.task_id for record in run.trials()] == ["a", "b"]
    assert len(list(run.journal())) == 2


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "damaged"),
        (b'{"run_id":', "damaged"),
        (b"[" * 5000, "damaged"),
        (b'{"run_id": 1}', "damaged"),
        (to_json(msgspec.structs.replace(run_record(), schema_version=99)), "newer version"),
        (None, "not a run directory"),
    ],
)
def test_a_run_file_that_cannot_be_used_is_named(
    content: bytes | None, complaint: str, tmp_path: Path
) -> None:
    """The error says which file and what is wrong with it."""
    if content is not None:
        (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(ConfigError, match=complaint) as caught:
        load_run(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_run_file_cut_at_any_byte_is_an_error_and_no_crash(tmp_path: Path) -> None:
    """Half a run.json is never taken for a whole one."""
    data = to_json(run_record())
    for cut in range(len(data)):
        (tmp_path / "run.json").write_bytes(data[:cut])
        with pytest.raises(ConfigError, match="damaged"):
            load_run(tmp_path)


def test_unknown_fields_of_a_run_are_ignored(tmp_path: Path) -> None:
    """A newer minor version's file can be read."""
    fields = msgspec.json.decode(to_json(run_record())) | {"novelty": {"a": 1}}
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(fields))
    assert load_run(tmp_path).record == run_record()


def test_the_newest_readable_run_is_found(tmp_path: Path) -> None:
    """Run ids sort by time; a run that cannot be read is passed over."""
    for run_id in ("20250101T000000Z-aaaaaaaa", "20250102T000000Z-aaaaaaaa"):
        _make_run(tmp_path, run_id)
    damaged = _make_run(tmp_path, "20250103T000000Z-aaaaaaaa")
    (damaged / "run.json").write_bytes(b"{")
    found = [run.run_dir.name for run in readable_runs(tmp_path)]
    assert found == ["20250102T000000Z-aaaaaaaa", "20250101T000000Z-aaaaaaaa"]


def test_no_run_at_all_is_no_error_when_the_newest_is_wanted(tmp_path: Path) -> None:
    """The first run of a combination has nothing to reuse."""
    assert list(readable_runs(tmp_path / "never")) == []


def test_a_run_that_does_not_exist_is_answered_with_those_that_do(tmp_path: Path) -> None:
    """A slip of the keyboard is seen at once."""
    _make_run(tmp_path, "first-run")
    with pytest.raises(ConfigError, match=r"did you mean 'first-run'\? \(there: first-run\)"):
        find_run(tmp_path, "frist-run")


def test_a_run_id_cannot_leave_its_namespace(tmp_path: Path) -> None:
    """A path in place of a run id is refused."""
    _make_run(tmp_path, "other")
    (tmp_path / "space").mkdir()
    with pytest.raises(ConfigError, match="plain name"):
        find_run(tmp_path / "space", "../other")


def _record_with_detail(run_dir: Path, content: bytes | None) -> TrialRecord:
    if content is not None:
        (run_dir / "d.json").write_bytes(content)
    return msgspec.structs.replace(trial(), details="d.json")


def test_a_detail_cut_at_any_byte_is_explained(tmp_path: Path) -> None:
    """A damaged detail file gives a sentence, never a traceback; a whole one its content."""
    data = to_json(detail())
    for cut in range(len(data)):
        read = read_detail(tmp_path, _record_with_detail(tmp_path, data[:cut]))
        assert isinstance(read, str)
        assert "d.json" in read
    assert read_detail(tmp_path, _record_with_detail(tmp_path, data)) == detail()


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"[" * 5000, b'{"task_id": "\\ud800"}', b"null"])
def test_an_unusable_detail_is_explained(content: bytes | None, tmp_path: Path) -> None:
    """Missing, binary, endlessly nested or wrong: one sentence."""
    read = read_detail(tmp_path, _record_with_detail(tmp_path, content))
    assert not isinstance(read, Detail)


def test_a_detail_path_cannot_leave_the_run(tmp_path: Path) -> None:
    """A journal from elsewhere cannot make us show other files."""
    (tmp_path / "run").mkdir()
    (tmp_path / "other.json").write_bytes(to_json(detail()))
    record = msgspec.structs.replace(trial(), details="../other.json")
    assert "outside" in str(read_detail(tmp_path / "run", record))
