from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import MutableMapping
from pathlib import Path

import anyio
import msgspec
import pytest
import structlog

from agentcompass.errors import ConfigError
from agentcompass.logs import bind_log, current_log, json_line, level_number, open_run_log


class Reprless:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def decoded(lines: list[bytes]) -> list[dict[str, object]]:
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    return [msgspec.json.decode(line) for line in lines]


def test_event_becomes_one_json_line_with_utc_time() -> None:
    """A line holds time, level, event name and fields."""
    lines: list[bytes] = []
    with open_run_log(lines.append) as log:
        log.info("run_started", tasks=3, path=Path("/x"))
    (event,) = decoded(lines)
    assert str(event.pop("timestamp")).endswith("Z")
    assert event == {"level": "info", "event": "run_started", "tasks": 3, "path": "/x"}


def test_file_and_console_have_independent_levels() -> None:
    """Each sink gets what its own level lets through, whichever is lower."""
    for file_level, console_level in (("debug", "ERROR"), ("ERROR", "debug")):
        file: list[bytes] = []
        console: list[str] = []
        with open_run_log(
            file.append, file_level=file_level, print_line=console.append, console_level=console_level
        ):
            current_log().debug("detail")
            current_log().error("trouble")
        counts = {"debug": 2, "ERROR": 1}
        assert (len(file), len(console)) == (counts[file_level], counts[console_level])


def test_outside_of_a_run_logging_is_silent() -> None:
    """Components may log anywhere; without a run nothing happens."""
    log = current_log()
    log.bind(task="a").error("nobody_listens", field=1)
    log.exception("nobody_listens")
    with bind_log(task="a"):
        assert current_log() is log


def test_log_is_current_only_inside_its_block() -> None:
    """Afterwards the surrounding log, or silence, is back."""
    outer: list[bytes] = []
    inner: list[bytes] = []
    with open_run_log(outer.append):
        with open_run_log(inner.append):
            current_log().info("in")
        current_log().info("out")
    current_log().info("gone")
    assert [[event["event"] for event in decoded(lines)] for lines in (inner, outer)] == [["in"], ["out"]]


def test_bound_fields_hold_inside_the_block() -> None:
    """Context is bound once and nests."""
    lines: list[bytes] = []
    with open_run_log(lines.append), bind_log(task="a"):
        with bind_log(attempt=2):
            current_log().info("inner")
        current_log().info("outer")
    fields = [{key: event.get(key) for key in ("task", "attempt")} for event in decoded(lines)]
    assert fields == [{"task": "a", "attempt": 2}, {"task": "a", "attempt": None}]


@pytest.mark.anyio
async def test_runs_at_the_same_time_do_not_mix() -> None:
    """Each task, its children and its threads log to their own run with their own fields."""
    files: dict[str, list[bytes]] = {"one": [], "two": []}
    opened = {name: anyio.Event() for name in files}

    async def run(name: str, other: str) -> None:
        with open_run_log(files[name].append), bind_log(run=name):
            opened[name].set()
            await opened[other].wait()
            current_log().info("on_loop")
            await anyio.to_thread.run_sync(current_log().info, "direct")
            await anyio.to_thread.run_sync(lambda: current_log().info("in_thread"))

    async with anyio.create_task_group() as group:
        group.start_soon(run, "one", "two")
        group.start_soon(run, "two", "one")
    for name, lines in files.items():
        assert [event["run"] for event in decoded(lines)] == [name] * 3


def test_exception_is_rendered_for_file_and_console() -> None:
    """The file keeps the traceback, the console one line."""
    file: list[bytes] = []
    console: list[str] = []
    with open_run_log(file.append, print_line=console.append) as log:
        try:
            raise ValueError("broken \ud800")
        except ValueError as error:
            log.exception("handled")
            log.warning("told", exc_info=error)
    for event in decoded(file):
        assert "Traceback" in str(event["exception"])
        assert "ValueError: broken" in str(event["exception"])
    assert console[0].endswith("error handled error='ValueError: broken \\ud800'")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\xff", "/w=="),
        (object, "<class 'object'>"),
        ("\ud800", "\ufffd"),
        ({("a", 1): {2}}, {"('a', 1)": [2]}),
        (float("nan"), None),
        ([1, ["\ud800"]], [1, ["\ufffd"]]),
        (2**80, 2**80),
    ],
)
def test_any_field_becomes_strict_json(value: object, shown: object) -> None:
    """Foreign values are shown by their repr; nothing raises, nothing breaks the line."""
    assert msgspec.json.decode(json_line({"field": value})) == {"field": shown}


def test_self_containing_field_is_cut_off() -> None:
    """A cycle ends at some depth."""
    cycle: list[object] = []
    cycle.append(cycle)
    assert json_line({"field": cycle}).endswith(b"}\n")


def test_raising_sink_or_field_harms_nobody() -> None:
    """A full disk, a closed console or a broken repr stays with the log, and the other sink is served."""
    console: list[str] = []

    def full(_line: bytes) -> None:
        raise OSError(28, "No space left on device")

    with open_run_log(full, print_line=console.append) as log:
        log.info("first")
        log.info("second", field=Reprless())
        log.info("third")
    assert [line.split()[2] for line in console] == ["first", "third"]


def test_console_line_is_short_and_readable() -> None:
    """Local time, level, event, fields; long values are cut, spaces quoted."""
    console: list[str] = []
    with open_run_log(lambda _line: None, print_line=console.append) as log:
        log.bind(task="a b").warning("trial_failed", attempt=1, error="x" * 500)
    time_text, rest = console[0].split(" ", 1)
    assert len(time_text) == 8
    assert rest == f"warning trial_failed task='a b' attempt=1 error={'x' * 120}…"


def test_wrong_level_names_the_valid_ones() -> None:
    """The message lists the levels and the nearest one."""
    assert level_number("warning") == level_number("WARNING") == 30
    with pytest.raises(ConfigError, match=r"'INFOS'.*did you mean 'INFO'.*DEBUG, INFO, WARNING, ERROR, CRIT"):
        level_number("INFOS")
    with pytest.raises(ConfigError), open_run_log(lambda _line: None, file_level="loud"):
        pass


def test_host_configuration_is_neither_used_nor_changed() -> None:
    """The host's structlog and logging set-up stays as it is, and does not reach into the run's log."""
    lines: list[bytes] = []
    seen: list[str] = []

    def see(_logger: object, _method: str, event: MutableMapping[str, object]) -> str:
        seen.append(str(event))
        return ""

    structlog.configure(processors=[see])
    before = (structlog.get_config()["processors"], logging.root.level, list(logging.root.handlers))
    try:
        with open_run_log(lines.append) as log:
            log.info("mine")
        after = (structlog.get_config()["processors"], logging.root.level, list(logging.root.handlers))
    finally:
        structlog.reset_defaults()
    assert len(lines) == 1
    assert seen == []
    assert before == after


@pytest.mark.slow
def test_importing_costs_no_structlog() -> None:
    """Only a run pays for structlog."""
    program = "import sys, agentcompass.logs; sys.exit('structlog' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
