"""Read the server name at the beginning of a TLS connection (RFC 8446 section 4.1.2, RFC 6066 section 3)."""

from __future__ import annotations

HANDSHAKE = 22
"""The first byte of a TLS connection."""
MAX_HELLO_BYTES = 16 * 1024
"""Several times what clients send; what there is is read again with every further piece."""
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_HOST_NAME = 0


class HelloError(Exception):
    """What was sent is no client hello that a server would take."""


def server_name(data: bytes) -> str | None:
    """
    Return the server name of a client hello, empty if it has none; None while it is not complete.

    Raises:
        HelloError: It is malformed.
    """
    handshake = _handshake(data)
    if len(handshake) < 4:
        return None
    size = int.from_bytes(handshake[1:4], "big")
    if handshake[0] != _CLIENT_HELLO or size > MAX_HELLO_BYTES:
        raise HelloError("the handshake does not begin with a client hello")
    return _name(_Reader(handshake[4 : 4 + size])) if len(handshake) >= 4 + size else None


def _handshake(data: bytes) -> bytes:
    """Join the content of the records: a hello may be spread over several."""
    content, at = bytearray(), 0
    while len(data) - at >= 5:
        kind, major = data[at], data[at + 1]
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        if kind != HANDSHAKE or major != 3 or size == 0:
            break
        content += data[at + 5 : at + 5 + size]
        at += 5 + size
    if not content and len(data) >= 5:
        raise HelloError("no TLS handshake record")
    return bytes(content)


class _Reader:
    """Takes fields from the front of a message."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __bool__(self) -> bool:
        return bool(self._data)

    def take(self, size: int) -> bytes:
        if len(self._data) < size:
            raise HelloError("a field is longer than its message")
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def rest(self) -> bytes:
        return self.take(len(self._data))

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, length_bytes: int) -> _Reader:
        return _Reader(self.take(self.number(length_bytes)))


def _name(hello: _Reader) -> str:
    hello.take(2 + 32)  # version, random
    hello.vector(1)  # session id
    hello.vector(2)  # cipher suites
    hello.vector(1)  # compression methods
    extensions = hello.vector(2) if hello else _Reader(b"")
    names = []
    while extensions:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            entries = content.vector(2)
            while entries:
                name_kind, name = entries.number(1), entries.vector(2)
                if name_kind == _HOST_NAME:
                    names.append(name.rest().decode("ascii", "replace"))
    if len(names) > 1:
        raise HelloError("more than one server name")
    return names[0] if names else ""
