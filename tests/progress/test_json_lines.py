from __future__ import annotations

import io

import msgspec

from agentcompass.progress.json_lines import JsonDisplay
from agentcompass.progress.output import Output
from agentcompass.progress.tally import Tally
from agentcompass.records import ProgressEvent

from .events import StillClock, finished, run_started, started


def written(display: JsonDisplay, stream: io.StringIO) -> list[bytes]:
    paint = display.frame(last=True)
    assert paint is not None
    paint()
    return stream.getvalue().encode("utf-8").splitlines()


def test_every_event_is_a_line_that_decodes_again() -> None:
    """A program gets all events, in order, each as one JSON object with its type."""
    stream, tally = io.StringIO(), Tally("demo", clock=StillClock())
    display = JsonDisplay(Output(stream))
    events: list[ProgressEvent] = [run_started(), started("x\ny"), finished("任务")]
    for event in events:
        display.note(event, tally)
    lines = written(display, stream)
    assert [msgspec.json.decode(line, type=ProgressEvent) for line in lines] == events


def test_log_lines_and_hostile_text_stay_json() -> None:
    """Log lines share the stream without breaking it; a lone surrogate is replaced."""
    stream, tally = io.StringIO(), Tally("demo", clock=StillClock())
    display = JsonDisplay(Output(stream))
    display.line('12:00 "quoted" \x1b[31m')
    display.note(started("\ud800"), tally)
    log, event = map(msgspec.json.decode, written(display, stream))
    assert log == {"type": "log", "text": '12:00 "quoted" \x1b[31m'}
    assert event["task_id"] == "\ufffd"
