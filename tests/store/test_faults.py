from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import cast

import anyio
import psutil
import pytest
import trio.testing
from anyio import to_thread

from agentcompass.errors import StoreError
from agentcompass.records import TrialRecord
from agentcompass.selftest.disk import Fault, FaultyDisk
from agentcompass.store.journal import read_journal
from agentcompass.store.run import read_detail
from agentcompass.store.scrub import Scrubber
from agentcompass.store.writer import RunStore, open_store

from .examples import detail, run_record, trial

_COMMITS = """
import resource, sys
from pathlib import Path
import anyio
from agentcompass.errors import StoreError
from agentcompass.store.scrub import Scrubber
from agentcompass.store.writer import RunStore, open_store
from tests.store.examples import detail, trial

async def commit(store, worker, output):
    for number in range(1_000_000):
        task_id = f"t{worker}-{number}"
        try:
            await store.commit(trial(task_id), detail(task_id, output=output))
        except StoreError as error:
            print("refused", task_id, error, flush=True)
            return
        print("acknowledged", task_id, flush=True)

async def main(run_dir, file_bytes, output_bytes):
    if file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    async with open_store(Path(run_dir), scrubber=Scrubber([])) as store, anyio.create_task_group() as group:
        for worker in range(8):
            group.start_soon(commit, store, worker, "x" * output_bytes)

anyio.run(main, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
"""


def _start(run_dir: Path, *, file_bytes: int = 0, output_bytes: int = 10) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _COMMITS, str(run_dir), str(file_bytes), str(output_bytes)]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)


def _records(run_dir: Path) -> list[TrialRecord]:
    reader = read_journal(run_dir / "attempts.jsonl")
    return [record for record in reader if isinstance(record, TrialRecord)]


def _words(output: str, first: str) -> list[list[str]]:
    return [line.split(maxsplit=2) for line in output.splitlines() if line.startswith(first)]


@pytest.mark.slow
def test_a_full_disk_refuses_new_trials_and_keeps_the_old_ones(tmp_path: Path) -> None:
    """When the journal cannot grow, waiters hear of it, and every acknowledged record stays readable."""
    output, _ = _start(tmp_path, file_bytes=20_000).communicate()

    acknowledged = {words[1] for words in _words(output, "acknowledged")}
    refused = _words(output, "refused")
    assert len(refused) == 8
    assert all(str(tmp_path) in why and f"run_id={tmp_path.name!r}" in why for _, _, why in refused)
    assert {record.task_id for record in _records(tmp_path)} == acknowledged
    assert len(acknowledged) > 20
    assert (tmp_path / "attempts.jsonl").read_bytes().endswith(b"}\n")


@pytest.mark.slow
def test_a_run_goes_on_after_the_disk_has_space_again(tmp_path: Path) -> None:
    """A later session appends to the journal of one that ran into a full disk."""
    output, _ = _start(tmp_path, file_bytes=5_000).communicate()
    before = _records(tmp_path)

    async def resume() -> None:
        async with open_store(tmp_path, scrubber=Scrubber([])) as store:
            await store.commit(trial("later"), None)

    anyio.run(resume)
    assert len(before) == len(_words(output, "acknowledged"))
    assert _records(tmp_path) == [*before, trial("later")]


@pytest.mark.slow
def test_evidence_that_does_not_fit_costs_no_verdict(tmp_path: Path) -> None:
    """Details that cannot be written leave their record in the journal, and stop the run."""
    output, _ = _start(tmp_path, file_bytes=50_000, output_bytes=100_000).communicate()

    records = _records(tmp_path)
    assert {record.task_id for record in records} == {words[1] for words in _words(output, "acknowledged")}
    assert records
    assert {record.details for record in records} == {""}
    assert len(_words(output, "refused")) == 8


@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    """After kill -9 in the middle of commits, each acknowledged record is there with its details."""
    with _start(tmp_path, output_bytes=2000) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(300)]
        process.kill()
        lines += process.stdout.readlines()

    reader = read_journal(tmp_path / "attempts.jsonl")
    found = {record.task_id: record for record in reader if isinstance(record, TrialRecord)}
    complete = "".join(line for line in lines if line.endswith("\n"))
    acknowledged = [words[1].strip() for words in _words(complete, "acknowledged")]
    assert len(acknowledged) >= 300
    assert reader.damaged_lines <= 1
    for task_id in acknowledged:
        assert read_detail(tmp_path, found[task_id]) == detail(task_id, output="x" * 2000)


@pytest.mark.anyio
async def test_evidence_without_a_place_stops_the_run_after_its_record(tmp_path: Path) -> None:
    """Without the details folder the trial at hand is still recorded; the next one is refused."""
    async with open_store(tmp_path, scrubber=Scrubber([])) as store:
        await anyio.Path(tmp_path / "details").rmdir()
        record = await store.commit(trial("kept"), detail("kept"))
        with pytest.raises(StoreError, match="No such file"):
            await store.commit(trial("refused"), None)
    assert record.details == ""
    assert await to_thread.run_sync(_records, tmp_path) == [trial("kept")]


@pytest.mark.anyio
async def test_a_deleted_journal_is_noticed(tmp_path: Path) -> None:
    """Nothing is acknowledged into a file that no longer has a name."""
    async with open_store(tmp_path, scrubber=Scrubber([])) as store:
        await store.commit(trial(), None)
        await anyio.Path(tmp_path / "attempts.jsonl").unlink()
        with pytest.raises(StoreError, match="deleted"):
            await store.commit(trial("next"), None)


@pytest.mark.anyio
async def test_all_waiters_of_a_failed_batch_are_told(tmp_path: Path) -> None:
    """Nobody hangs: neither those in the batch, nor those that wait behind it, nor those that come later."""
    told: list[str] = []

    async def commit(number: int) -> None:
        with pytest.raises(StoreError, match="deleted"):
            await store.commit(trial(f"t{number}"), detail(f"t{number}"))
        told.append(str(number))

    async with open_store(tmp_path, scrubber=Scrubber([])) as store:
        await anyio.Path(tmp_path / "attempts.jsonl").unlink()
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                for number in range(30):
                    group.start_soon(commit, number)
                    await anyio.lowlevel.checkpoint()
            await commit(30)
    assert len(told) == 31


@pytest.mark.anyio
async def test_what_was_refused_is_not_written(tmp_path: Path) -> None:
    """After a failure, the journal holds exactly the trials whose callers were told so."""
    acknowledged: list[str] = []

    async def commit(task_id: str) -> None:
        with suppress(StoreError):
            acknowledged.append((await store.commit(trial(task_id), detail(task_id))).task_id)

    async with open_store(tmp_path, scrubber=Scrubber([])) as store:
        await anyio.Path(tmp_path / "details").rmdir()
        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(commit, f"t{number}")
                await anyio.lowlevel.checkpoint()
    assert sorted(acknowledged) == sorted(r.task_id for r in await to_thread.run_sync(_records, tmp_path))
    assert 0 < len(acknowledged) < 30


@pytest.mark.anyio
async def test_a_bug_in_the_writer_leaves_nobody_waiting(tmp_path: Path) -> None:
    """If the writer itself breaks, its error comes out, and callers under a shield are told."""
    refused: list[str] = []

    async def commit(store: RunStore, task_id: str) -> None:
        with anyio.fail_after(5, shield=True), pytest.raises(StoreError, match="stopped"):
            await store.commit(trial(task_id), None)
        refused.append(task_id)

    async def run() -> None:
        async with open_store(tmp_path, scrubber=Scrubber([])) as store, anyio.create_task_group() as group:
            store.log_line(cast("bytes", "no bytes"))
            for number in range(5):
                group.start_soon(commit, store, f"t{number}")
                await anyio.lowlevel.cancel_shielded_checkpoint()

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert caught.group_contains(TypeError)
    assert len(refused) == 5


@pytest.mark.anyio
@pytest.mark.parametrize(
    "anyio_backend", [("trio", {"clock": trio.testing.MockClock(autojump_threshold=0.05)})], ids=["trio"]
)
async def test_a_disk_that_hangs_does_not_hang_the_run(tmp_path: Path, anyio_backend: object) -> None:
    """The end waits for a minute, then gives the writing up; a pipe that nobody reads stands for the disk."""
    os.mkfifo(tmp_path / "run.log")
    with anyio.fail_after(70):
        async with open_store(tmp_path, scrubber=Scrubber([])) as store:
            store.log_line(b"x" * 1_000_000)
    await to_thread.run_sync(_drain, tmp_path / "run.log", 1_000_001)  # lets the abandoned thread go


def _drain(pipe: Path, size: int) -> None:
    with pipe.open("rb") as file:
        assert len(file.read(size)) == size


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize(
    "anyio_backend", [("trio", {"clock": trio.testing.MockClock(autojump_threshold=0.02)})], ids=["trio"]
)
async def test_a_disk_that_hangs_on_a_single_file_is_given_up(tmp_path: Path, anyio_backend: object) -> None:
    """After a minute it is an error, and nothing waits for that disk again."""
    disk = FaultyDisk(Fault(manner="hang", operation="rename", at=1))
    async with open_store(tmp_path, scrubber=Scrubber([]), files=disk) as store:
        with pytest.raises(StoreError, match="does not answer"):
            await store.write_run(run_record())
        given_up = anyio.current_time()
        for refused in (store.write_run(run_record()), store.commit(trial(), None)):
            with pytest.raises(StoreError, match="does not answer"):
                await refused
    assert anyio.current_time() == given_up
    disk.release()


_HANGS = """
import sys
from pathlib import Path
import anyio
from agentcompass.selftest.disk import Fault, FaultyDisk
from agentcompass.store.scrub import Scrubber
from agentcompass.store.writer import open_store
from tests.store.examples import trial

async def main(run_dir):
    disk = FaultyDisk(Fault(manner="hang", operation="sync", at=1))
    opened = open_store(run_dir, scrubber=Scrubber([]), files=disk)
    async with opened as store, anyio.create_task_group() as group:
        group.start_soon(store.commit, trial(), None)
        while not disk.hangs.is_set():
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()
        print(store.give_up())

anyio.run(main, Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_disk_that_hangs_does_not_keep_the_process(tmp_path: Path) -> None:
    """When the run is over the process ends, though its disk still has not answered."""
    command = [sys.executable, "-c", _HANGS, str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=15, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "does not answer" in done.stdout


@pytest.mark.anyio
@pytest.mark.parametrize("at", range(1, 9))
async def test_a_store_that_cannot_be_opened_leaves_no_file_open(tmp_path: Path, at: int) -> None:
    """Whatever fails on the way, also ending a torn line, is one error, and nothing stays open."""
    await anyio.Path(tmp_path / "attempts.jsonl").write_bytes(b"torn")
    descriptors = psutil.Process().num_fds()
    disk = FaultyDisk(Fault(manner="for_good", at=at))
    with pytest.raises(StoreError, match="No space left"):
        async with open_store(tmp_path, scrubber=Scrubber([]), files=disk) as store:
            await store.write_run(run_record())
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208


@pytest.mark.anyio
async def test_a_failure_to_close_is_no_failure_of_the_run(tmp_path: Path) -> None:
    """Some network file systems report trouble only then; what was acknowledged was synced before."""
    disk = FaultyDisk(Fault(manner="for_good", operation="close", at=1))
    async with open_store(tmp_path, scrubber=Scrubber([]), files=disk) as store:
        await store.commit(trial(), None)
    assert disk.operations.count("close") == 3
    assert await to_thread.run_sync(_records, tmp_path) == [trial()]


@pytest.mark.anyio
async def test_a_directory_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    """The error names the path before any work is done."""
    with pytest.raises(StoreError, match="gone"):
        async with open_store(tmp_path / "gone", scrubber=Scrubber([])):
            pytest.fail("was opened")


@pytest.mark.anyio
async def test_lost_progress_lines_are_counted_and_harm_no_record(tmp_path: Path) -> None:
    """A log that cannot be written to is no reason to lose a trial."""
    await anyio.Path(tmp_path / "run.log").symlink_to("/dev/full")
    async with open_store(tmp_path, scrubber=Scrubber([])) as store:
        store.log_line(b"{}")
        await store.commit(trial(), None)
        assert store.lost_lines == 1
    assert await to_thread.run_sync(_records, tmp_path) == [trial()]
