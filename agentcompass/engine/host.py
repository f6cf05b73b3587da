"""
Run the engine from synchronous code, wherever that code runs.

In a plain script the event loop runs in the caller's thread; where a loop is running already (a notebook
cell), a thread of its own does it. Signal handlers are touched only in the main thread, only where Python's
defaults are in place, and only while the call lasts.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from .limits import wake_call
from .stop import StopControl

T = TypeVar("T")
Main = Callable[[StopControl], Awaitable[T]]

_POLL_SECONDS = 0.1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_DEFAULT_HANDLERS = (signal.SIG_DFL, signal.default_int_handler)


@dataclass(slots=True)
class Outcome(Generic[T]):
    """What the engine returned, and the first signal that asked it to stop, if one did."""

    value: T
    signal_number: int | None


@dataclass(slots=True)
class _Stopper:
    """Passes a stop on to an engine in whatever thread, also when it comes before the engine is up."""

    asked: int = 0
    signal_number: int | None = None
    token: EventLoopToken | None = None
    pass_on: Callable[[], None] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def attach(self, control: StopControl) -> None:
        with self.lock:
            # A callback has no context of its own, and without one it does not know its event loop.
            self.token, self.pass_on = current_token(), partial(copy_context().run, control.request)
            early = self.asked
        for _ in range(early):
            control.request()

    def request(self, signal_number: int) -> None:
        """Safe in a signal handler of the main thread: the engine's loop does the work later."""
        self.asked += 1
        self.signal_number = self.signal_number or signal_number
        if self.token is not None and self.pass_on is not None:
            wake_call(self.token, self.pass_on)


def run_sync(main: Main[T]) -> Outcome[T]:
    """
    Run an engine to its end and return what it returns; a stop signal makes it end early and orderly.

    Args:
        main: Gets the control through which it is asked to stop.
    """
    stopper = _Stopper()

    async def with_control() -> T:
        control = StopControl()
        stopper.attach(control)
        return await main(control)

    if _loop_is_running():
        return Outcome(_run_in_thread(with_control, stopper), stopper.signal_number)
    with _signals_to(stopper):
        value = anyio.run(with_control)
    return Outcome(value, stopper.signal_number)


def _loop_is_running() -> bool:
    try:
        current_token()
    except RuntimeError:
        return False
    return True


@contextmanager
def _signals_to(stopper: _Stopper) -> Iterator[None]:
    """Let the stop signals reach the engine; handlers that the host installed keep theirs."""
    mine = []
    if threading.current_thread() is threading.main_thread():
        mine = [number for number in _STOP_SIGNALS if signal.getsignal(number) in _DEFAULT_HANDLERS]
    before = {number: signal.getsignal(number) for number in mine}
    for number in mine:
        signal.signal(number, lambda number, _frame: stopper.request(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_in_thread(main: Callable[[], Awaitable[T]], stopper: _Stopper) -> T:
    """Run the engine on a thread's own loop; Ctrl-C in the waiting caller asks it to stop."""
    results: list[T] = []
    errors: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
        try:
            results.append(anyio.run(main))
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            errors.append(error)
        finally:
            ended.set()

    context = copy_context()
    thread = threading.Thread(target=context.run, args=(work,), name="agentcompass", daemon=True)
    thread.start()
    while not ended.is_set():
        try:
            # Not for ever: a signal that another thread receives does not wake a waiting lock.
            ended.wait(_POLL_SECONDS)
        except KeyboardInterrupt:
            stopper.request(signal.SIGINT)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
