"""Drive a display: paint a few times a second in a thread, so that a paused terminal stalls nobody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anyio import move_on_after

from ..daemon import DaemonThread
from ..logs import current_log
from ..records import ProgressEvent
from .display import Display
from .mishaps import Mishaps
from .tally import Tally

_FRAME_SECONDS = 0.2


class Screen:
    """A display with the thread that paints it."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._thread = DaemonThread("agentcompass progress")
        self._mishaps = Mishaps(self._report)
        self._log = current_log()

    def note(self, event: ProgressEvent, tally: Tally) -> None:
        """Tell the display about an event."""
        self._log = current_log()  # painting belongs to no run, so errors go to the log of the last event
        with self._mishaps:
            self._display.note(event, tally)

    def line(self, text: str) -> None:
        """Show a line of the log; call it on any thread."""
        with self._mishaps:
            self._display.line(text)

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Paint until cancelled."""
        while True:
            await sleep(_FRAME_SECONDS)
            await self._paint(last=False)

    async def close(self, *, grace_seconds: float) -> None:
        """Paint for the last time; give up if the terminal takes too long."""
        with move_on_after(grace_seconds, shield=True):
            await self._paint(last=True)
        self._thread.stop()

    async def _paint(self, *, last: bool) -> None:
        with self._mishaps:
            paint = self._display.frame(last=last)
            if paint is not None:
                await self._thread.run(paint)

    def _report(self, error: Exception) -> None:
        self._log.warning("progress_display_failed", exc_info=error)
