"""A text stream that never raises: what it cannot encode is replaced, and a broken pipe silences it."""

from __future__ import annotations

import io
import os
import select
from typing import TextIO

_ASCII_GLYPHS = str.maketrans({"…": "~", "·": "-", "━": "=", "─": "-"})
_FALLBACK_COLUMNS, _FALLBACK_ROWS = 80, 24


class Output:
    """
    Write to a stream such as ``sys.stderr``; may block, so call it in a thread.

    A real file is written by its descriptor: a thread that hangs in a buffered stream of the interpreter
    (a paused terminal) would make the interpreter abort at exit.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream or io.StringIO()
        self.encoding = _known_encoding(self._stream)
        self.is_unicode = self.encoding.lower().replace("-", "").startswith("utf")
        self._descriptor = _descriptor(self._stream)
        self._broken = stream is None  # a process without stderr

    def write(self, text: str) -> int:
        """Write a text, or nothing once the stream has failed."""
        if not self._broken:
            try:
                self._write(self._encode(text))
            except (OSError, ValueError):  # closed, or its reader is gone
                self._broken = True
        return len(text)

    def flush(self) -> None:
        """Do nothing; every write goes through."""

    def isatty(self) -> bool:
        """Tell whether a terminal is at the other end."""
        try:
            return self._stream.isatty()
        except ValueError:
            return False

    def size(self) -> tuple[int, int]:
        """Return columns and rows of the terminal."""
        try:
            columns, rows = os.get_terminal_size(-1 if self._descriptor is None else self._descriptor)
        except OSError:
            columns = rows = 0
        return columns or _FALLBACK_COLUMNS, rows or _FALLBACK_ROWS

    def _encode(self, text: str) -> bytes:
        if not self.is_unicode:
            text = text.translate(_ASCII_GLYPHS)
        return text.encode(self.encoding, "replace")

    def _write(self, data: bytes) -> None:
        if self._descriptor is None:
            self._stream.write(data.decode(self.encoding))
            self._stream.flush()
        else:
            self._stream.flush()
            _write_all(self._descriptor, data)


def _known_encoding(stream: TextIO) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        "".encode(encoding)
    except LookupError:
        return "ascii"
    return encoding


def _descriptor(stream: TextIO) -> int | None:
    # Exactly this type: subclasses and look-alikes (notebooks, captured output) have descriptors that lead
    # elsewhere.
    if type(stream) is not io.TextIOWrapper:
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another program made the terminal non-blocking
            select.select([], [descriptor], [], 1.0)
