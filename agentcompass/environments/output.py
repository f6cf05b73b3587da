"""What is kept of a command's output: all of it, or its head and tail, never more than a limit."""

from __future__ import annotations


class KeptOutput:
    """
    Keep the first and the last half of a stream and count what is left out between them.

    Args:
        max_bytes: How much is kept in the end; up to half as much again is held meanwhile.
    """

    def __init__(self, max_bytes: int) -> None:
        self._head_bytes = max_bytes // 2
        self._tail_bytes = max_bytes - self._head_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._total_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next piece of the stream."""
        self._total_bytes += len(chunk)
        room = self._head_bytes - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._tail_bytes:  # not at each chunk: cutting copies the tail
            self._cut()

    def _cut(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_bytes)]

    @property
    def content(self) -> bytes:
        """What was kept."""
        self._cut()
        return bytes(self._head + self._tail)

    @property
    def dropped_bytes(self) -> int:
        """How many bytes were left out between head and tail."""
        self._cut()
        return self._total_bytes - len(self._head) - len(self._tail)
