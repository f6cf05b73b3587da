from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest
import trio.testing
from anyio import to_thread

from agentcompass.errors import ConfigError, StoreError
from agentcompass.records import (
    NO_USAGE,
    Detail,
    Failure,
    Metrics,
    Notice,
    PlanRecord,
    ProgressSnapshot,
    RunRecord,
)
from agentcompass.store.journal import read_journal
from agentcompass.store.run import read_detail
from agentcompass.store.scrub import Scrubber
from agentcompass.store.writer import MAX_PENDING_LINES, RunStore, open_store

from .examples import CANARY, detail, metrics, run_record, trial

pytestmark = pytest.mark.anyio

_NO_SECRETS = Scrubber([])


def _snapshot(done: int) -> ProgressSnapshot:
    return ProgressSnapshot(
        request="demo",
        run_id="run-1",
        status="running",
        attempts=9,
        done=done,
        running={},
        evaluated=0,
        score_sum=0.0,
        usage=NO_USAGE,
        at="",
    )


def _all_bytes(run_dir: Path) -> dict[str, bytes]:
    files = (path for path in run_dir.rglob("*") if path.is_file())
    return {str(path.relative_to(run_dir)): path.read_bytes() for path in files}


async def _task_ids(run_dir: Path) -> list[str]:
    def read() -> list[str]:
        return [getattr(record, "task_id", "plan") for record in read_journal(run_dir / "attempts.jsonl")]

    return await to_thread.run_sync(read)


async def _read(path: Path) -> bytes:
    return await anyio.Path(path).read_bytes()


# --- commits --------------------------------------------------------------------------------------


async def test_an_acknowledged_trial_is_on_disk_with_its_evidence(tmp_path: Path) -> None:
    """When ``commit`` returns, record, details and artifacts can be read by anyone."""
    async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:
        record = await store.commit(trial("a/b"), detail("a/b"), {"patch": b"\xff\x00"})

        [written] = await to_thread.run_sync(list, read_journal(tmp_path / "attempts.jsonl"))
        assert written == record == msgspec.structs.replace(trial("a/b"), details=record.details)
        evidence = await to_thread.run_sync(read_detail, tmp_path, record)
        assert isinstance(evidence, Detail)
        assert evidence.steps == detail("a/b").steps
        assert await _read(tmp_path / evidence.artifacts["patch"]) == b"\xff\x00"


async def test_many_attempts_commit_at_once(tmp_path: Path) -> None:
    """Each caller gets its own record back, and each record is there exactly once."""
    committed: list[str] = []

    async def commit(store: RunStore, number: int) -> None:
        record = await store.commit(trial(f"t{number}"), detail(f"t{number}"))
        assert record.details == f"details/t{number}.1.json"
        committed.append(record.task_id)

    async with open_store(tmp_path, scrubber=_NO_SECRETS) as store, anyio.create_task_group() as group:
        for number in range(200):
            group.start_soon(commit, store, number)

    assert sorted(await _task_ids(tmp_path)) == sorted(committed)
    assert len(committed) == 200


async def test_every_trial_of_an_attempt_keeps_its_evidence(tmp_path: Path) -> None:
    """A retry does not write over the trial before it."""
    async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:
        records = [
            await store.commit(trial(number=n), detail(output=f"trial {n}", number=n), {"log": b"%d" % n})
            for n in (1, 2)
        ]
    evidence = [await to_thread.run_sync(read_detail, tmp_path, record) for record in records]
    assert ["trial 1" in str(it) for it in evidence] == [True, False]
    assert await _read(tmp_path / "artifacts/task/1/log") == b"1"
    assert await _read(tmp_path / "artifacts/task/1.t2/log") == b"2"


async def test_a_resumed_run_is_appended_to(tmp_path: Path) -> None:
    """A second session keeps what the first one wrote, torn last lines included."""
    for number in (1, 2):
        async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:
            await store.commit_plan(PlanRecord(task_ids=["t1", "t2"], categories=[]))
            await store.commit(trial(f"t{number}"), None)
            store.log_line(b'{"n":%d}' % number)
        for name in ("attempts.jsonl", "run.log"):
            async with await anyio.open_file(tmp_path / name, "ab") as file:
                await file.write(b'{"torn')

    assert await _task_ids(tmp_path) == ["plan", "t1", "plan", "t2"]
    assert await _read(tmp_path / "run.log") == b'{"n":1}\n{"torn\n{"n":2}\n{"torn'


async def test_copies_are_written_with_the_paths_they_bring(tmp_path: Path) -> None:
    """Reused trials point to evidence that was copied before."""
    records = [msgspec.structs.replace(trial(f"t{n}"), details=f"details/t{n}.1.json") for n in range(50)]
    async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:
        await store.commit_copies(records)
        await store.commit_copies([])
    assert await to_thread.run_sync(list, read_journal(tmp_path / "attempts.jsonl")) == records


@pytest.mark.parametrize("task_id", ["../../etc/x", "/abs", "con", "a\\b", "x\ny", "é" * 300, "\ud800"])
async def test_no_task_id_leads_out_of_the_run_directory(task_id: str, tmp_path: Path) -> None:
    """Files lie inside the run directory whatever the ids and artifact names are."""
    run_dir = tmp_path / "runs" / "one"
    await anyio.Path(run_dir).mkdir(parents=True)
    async with open_store(run_dir, scrubber=_NO_SECRETS) as store:
        record = await store.commit(trial(task_id), detail(task_id), {"../../../x": b"1", "": b"2"})

    files = await to_thread.run_sync(_all_bytes, tmp_path)
    assert {Path(name).parts[:2] for name in files} == {("runs", "one")}
    evidence = await to_thread.run_sync(read_detail, run_dir, record)
    assert isinstance(evidence, Detail)
    assert [await _read(run_dir / path) for path in evidence.artifacts.values()] == [b"1", b"2"]


async def test_an_artifact_that_is_no_bytes_costs_only_itself(tmp_path: Path) -> None:
    """A harness's mistake neither loses the trial nor stops the run; its path stays empty."""
    wrong = cast("Mapping[str, bytes]", {"wrong": "text", "right": b"1"})
    async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:
        record = await store.commit(trial(), detail(), wrong)
        await store.commit(trial("next"), None)
    evidence = await to_thread.run_sync(read_detail, tmp_path, record)
    assert isinstance(evidence, Detail)
    assert evidence.artifacts == {"wrong": "", "right": "artifacts/task/1/right"}


# --- cancellation and the end ---------------------------------------------------------------------


async def test_a_cancelled_run_can_still_commit_under_a_shield(tmp_path: Path) -> None:
    """The writer works on while everything around it is being cancelled."""
    with anyio.CancelScope() as run:
        async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:
            run.cancel()
            with anyio.move_on_after(5, shield=True):
                await store.commit(trial("last"), detail("last"))
            await anyio.lowlevel.checkpoint()
    assert run.cancelled_caught
    assert await _task_ids(tmp_path) == ["last"]


async def test_a_waiter_that_is_cancelled_harms_nobody(tmp_path: Path) -> None:
    """Whoever gives up waiting leaves the journal and the other waiters alone."""
    async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:
        with anyio.CancelScope() as impatient:
            impatient.cancel()
            await store.commit(trial("impatient"), detail("impatient"))
        await store.commit(trial("patient"), detail("patient"))
    assert await _task_ids(tmp_path) == ["impatient", "patient"]


async def test_leaving_the_block_writes_what_still_waits(tmp_path: Path) -> None:
    """Progress, log and the latest snapshot are complete at the end."""
    async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:
        store.event(Notice(request="demo", text="stopping"))
        store.log_line(b'{"event":"stopping"}\n')
        for done in range(3):
            store.snapshot(_snapshot(done))
    assert json.loads(await _read(tmp_path / "progress.jsonl"))["text"] == "stopping"
    assert await _read(tmp_path / "run.log") == b'{"event":"stopping"}\n'
    assert msgspec.json.decode(await _read(tmp_path / "progress.json"), type=ProgressSnapshot) == _snapshot(2)


async def test_a_commit_after_the_end_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    """A store that is closed says so."""
    async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:
        pass
    with anyio.fail_after(5), pytest.raises(StoreError, match="stopped"):
        await store.commit(trial(), None)


async def test_an_error_of_the_block_comes_out_as_it_is(tmp_path: Path) -> None:
    """Callers choose by type, so the writer's task group must not wrap it."""
    with pytest.raises(ConfigError, match="mine"):
        async with open_store(tmp_path, scrubber=_NO_SECRETS):
            raise ConfigError("mine")


# --- lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "anyio_backend", [("trio", {"clock": trio.testing.MockClock(autojump_threshold=0.05)})], ids=["trio"]
)
async def test_lines_reach_the_disk_without_a_commit(tmp_path: Path, anyio_backend: object) -> None:
    """While nothing finishes, progress still gets out, about once a second."""
    async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:
        store.event(Notice(request="demo", text="waiting"))
        with anyio.fail_after(3):
            while not await _read(tmp_path / "progress.jsonl"):  # noqa: ASYNC110 -- a file has no event
                await anyio.sleep(0.5)


async def test_log_lines_of_many_threads_are_all_written(tmp_path: Path) -> None:
    """Worker threads log too; no line is lost or glued to another, also while batches are written."""
    async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:

        def log(thread: int) -> None:
            for number in range(500):
                store.log_line(b'{"thread":%d,"n":%d}' % (thread, number))

        async with anyio.create_task_group() as group:
            for thread in range(4):
                group.start_soon(to_thread.run_sync, log, thread)
            for number in range(20):
                await store.commit(trial(f"t{number}"), None)
    lines = (await _read(tmp_path / "run.log")).splitlines()
    assert len({(json.loads(line)["thread"], json.loads(line)["n"]) for line in lines}) == 2000
    assert len(lines) == 2000


async def test_a_flood_of_lines_is_cut_and_counted(tmp_path: Path) -> None:
    """Waiting lines never take more than a bounded amount of memory."""
    async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:
        for _ in range(MAX_PENDING_LINES + 5):
            store.log_line(b"{}")
        assert store.lost_lines == 5


# --- single files ---------------------------------------------------------------------------------


async def test_the_run_file_is_written_once(tmp_path: Path) -> None:
    """What a run was started with is never written over."""
    async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:
        await store.write_run(run_record("first"))
        with pytest.raises(StoreError, match="once"):
            await store.write_run(run_record("second"))
    assert msgspec.json.decode(await _read(tmp_path / "run.json"), type=RunRecord) == run_record("first")


async def test_final_files_replace_earlier_ones(tmp_path: Path) -> None:
    """A resumed run ends with the numbers of the whole, and leaves no temporary files."""
    async with open_store(tmp_path, scrubber=_NO_SECRETS) as store:
        await store.write_final(metrics(), "half")
        await store.write_final(metrics(), "whole: 1/2 \ud800")
    assert (await _read(tmp_path / "summary.md")).startswith(b"whole: 1/2 ")
    assert msgspec.json.decode(await _read(tmp_path / "metrics.json"), type=Metrics) == metrics()
    assert not (tmp_path / ".partial").exists()


# --- secrets --------------------------------------------------------------------------------------


async def test_no_file_of_a_run_holds_a_secret(tmp_path: Path) -> None:
    """A key that shows up in every field of everything is in none of the files, in no form."""
    encoded = base64.b64encode(b"user:" + CANARY.encode()).decode()
    poison = f"<{CANARY}> {json.dumps(CANARY)} {encoded}"
    failure = Failure(error="ModelAuthError", phase="agent", message=poison)
    record = msgspec.structs.replace(trial(), failure=failure, stop_reason=poison, category=poison)
    evidence = msgspec.structs.replace(
        detail(output=poison), answer=poison, verifier_output={poison: [poison]}, prompt=poison
    )
    async with open_store(tmp_path, scrubber=Scrubber([CANARY])) as store:
        await store.write_run(msgspec.structs.replace(run_record(), execution={"env": poison}))
        await store.commit(record, evidence, {poison: poison.encode(), "bin": b"\xff" + poison.encode()})
        store.event(Notice(request="demo", text=poison))
        store.log_line(json.dumps({"event": poison}).encode())
        store.log_line(poison.encode())
        store.snapshot(msgspec.structs.replace(_snapshot(1), status=poison))
        await store.write_final(metrics(), poison)

    files = await to_thread.run_sync(_all_bytes, tmp_path)
    assert len(files) == 10
    _assert_clean(files)
    assert await _task_ids(tmp_path) == ["task"]


def _assert_clean(files: Mapping[str, Any]) -> None:
    core = base64.b64encode(b"user:" + CANARY.encode())[8:-8]
    traces = (b"7Kd02hBv8XwLm", b"sk-canary", core[:12], core[-12:])
    assert [(name, trace) for name, data in files.items() for trace in traces if trace in data] == []
    assert [name for name in files if "canary" in name] == []
    assert all(b"[secret]" in data for name, data in files.items() if name != "metrics.json")


async def test_a_placeholder_key_that_is_part_of_an_id_does_not_break_the_run(tmp_path: Path) -> None:
    """With the key ``ollama`` and a model of that name, ids and paths still lead to the files."""
    record = run_record(model="ollama")
    async with open_store(tmp_path, scrubber=Scrubber(["ollama"])) as store:
        await store.write_run(record)
        written = await store.commit(trial("ollama"), detail("ollama", output="key: ollama"))
    assert msgspec.json.decode(await _read(tmp_path / "run.json"), type=RunRecord) == record
    [again] = await to_thread.run_sync(list, read_journal(tmp_path / "attempts.jsonl"))
    assert again == written
    evidence = await to_thread.run_sync(read_detail, tmp_path, written)
    assert isinstance(evidence, Detail)
    assert "key: [secret]" in str(evidence.steps)
