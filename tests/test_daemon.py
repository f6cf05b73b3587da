from __future__ import annotations

import threading

import anyio
import pytest

from agentcompass.daemon import DaemonThread

pytestmark = pytest.mark.anyio


async def test_functions_run_in_order_in_one_daemon_thread() -> None:
    """Results come back to whoever waits."""
    thread = DaemonThread("test")
    first, second = await thread.run(threading.current_thread), await thread.run(threading.current_thread)
    thread.stop()
    assert first is second
    assert first.daemon


async def test_error_is_raised_in_the_waiting_task() -> None:
    """The thread survives the error of a function."""
    thread = DaemonThread("test")
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0)
    assert await thread.run(lambda: 7) == 7
    thread.stop()


async def test_cancelled_wait_abandons_the_function() -> None:
    """The caller goes on at once; the thread takes the next function when it is free again."""
    thread, release = DaemonThread("test"), threading.Event()
    with anyio.move_on_after(0.01) as scope:
        await thread.run(release.wait)
    assert scope.cancelled_caught
    release.set()
    assert await thread.run(lambda: 7) == 7
    thread.stop()


def test_thread_outlives_its_loop() -> None:
    """A function that ends after its loop does no harm."""
    thread, release, ended = DaemonThread("test"), threading.Event(), threading.Event()

    async def main() -> None:
        with anyio.move_on_after(0.01):
            await thread.run(release.wait)

    anyio.run(main)
    release.set()
    anyio.run(thread.run, ended.set)
    assert ended.is_set()
    thread.stop()
