"""What every machine asks of a command, and the bytes that stand for its texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import ExecError


def check_command(arguments: Sequence[str], env: Mapping[str, str], *places: str) -> None:
    """
    Refuse a command that cannot be expressed.

    Args:
        places: Its working directory and whatever else goes with it as text.

    Raises:
        ExecError: Says why.
    """
    if not arguments:
        raise ExecError("the command is empty; name a program", retryable=False)
    if any("\0" in text for text in (*arguments, *places, *env, *env.values())):
        raise ExecError("the command, its cwd or its env holds a NUL character", retryable=False)
    if any(not name or "=" in name for name in env):
        raise ExecError("the name of an environment variable is empty or holds '='", retryable=False)


def to_bytes(text: str) -> bytes:
    """Return the bytes of a text; undecodable ones as they came in."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate from a model's answer: no bytes stand for it
        return text.encode("utf-8", "replace")
