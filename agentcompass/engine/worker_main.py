"""The program of a worker process: run what the engine sends, send back what comes of it."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import IO, Any

HEADER = struct.Struct("<cI")
ITEM, END, ERROR = b"i", b"e", b"x"


def main() -> None:
    """Serve calls until the engine closes the pipe or dies."""
    _die_with_parent()
    requests, replies = _claim_stdio()
    while header := requests.read(HEADER.size):
        _, size = HEADER.unpack(header)
        for kind, payload in _frames(requests.read(size)):
            replies.write(HEADER.pack(kind, len(payload)) + payload)
            replies.flush()


def _frames(request: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Run one call; a failure becomes a frame, whatever the component raised."""
    try:
        function: Callable[..., Iterator[Any]]
        function, arguments = pickle.loads(request)  # noqa: S301  # comes from our own parent only
        for item in function(*arguments):
            yield ITEM, _dumps(item)
    except BaseException as error:  # noqa: BLE001  # the parent raises it again, with its name and text
        failure = (type(error).__name__, str(error), traceback.format_exc())
        yield ERROR, pickle.dumps(failure)
    else:
        yield END, b""


def _dumps(item: object) -> bytes:
    import cloudpickle

    return bytes(cloudpickle.dumps(item))


def _claim_stdio() -> tuple[IO[bytes], IO[bytes]]:
    """Keep the pipes for the protocol; what a component prints goes to standard error."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return requests, replies


def _die_with_parent() -> None:
    """
    End when the engine does: a computation that never returns would not notice the closed pipe.

    Linux tells of the end of the *thread* that started us, which may be a passing one, so the handler looks
    again. Python runs it even inside of a regular expression that never ends.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    engine = os.getppid()

    def look(_number: int, _frame: object) -> None:
        if os.getppid() != engine:
            os._exit(1)

    pr_set_pdeathsig = 1
    signal.signal(signal.SIGTERM, look)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGTERM)


if __name__ == "__main__":
    main()
