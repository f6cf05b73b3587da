"""
The log of a run: structlog lines for the run's file and, independently, for the console.

Nothing process-wide is touched: no ``structlog.configure``, no stdlib logging. The current logger travels in
a context variable, so several runs in one process stay apart. Where lines go is up to the caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import PurePath
from typing import TYPE_CHECKING, NoReturn, Protocol

import msgspec

from .errors import ConfigError, nearest

if TYPE_CHECKING:
    from structlog.typing import Processor

LEVELS: Mapping[str, int] = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
_CONSOLE_FIELD_CHARS = 120


class Log(Protocol):
    """What a component may do with the current log: an event is a short ``snake_case`` name plus fields."""

    def bind(self, **fields: object) -> Log: ...
    def debug(self, event: str, **fields: object) -> object: ...
    def info(self, event: str, **fields: object) -> object: ...
    def warning(self, event: str, **fields: object) -> object: ...
    def error(self, event: str, **fields: object) -> object: ...
    def critical(self, event: str, **fields: object) -> object: ...
    def exception(self, event: str, **fields: object) -> object:
        """Log an error together with the exception that is being handled."""
        ...


class _SilentLog:
    """What code outside of any run logs to."""

    def bind(self, **_fields: object) -> Log:
        return self

    def _ignore(self, event: str, **fields: object) -> None:
        pass

    debug = info = warning = error = critical = exception = _ignore


_SILENT: Log = _SilentLog()
_current: ContextVar[Log] = ContextVar("agentcompass_log", default=_SILENT)


def current_log() -> Log:
    """Return the log of the run that this code belongs to, or a silent one."""
    return _current.get()


@contextmanager
def bind_log(**fields: object) -> Iterator[Log]:
    """Add fields to whatever this task, its children and its threads log inside the block."""
    token = _current.set(_current.get().bind(**fields))
    try:
        yield _current.get()
    finally:
        _current.reset(token)


@contextmanager
def open_run_log(
    write_line: Callable[[bytes], object],
    *,
    file_level: str = "DEBUG",
    print_line: Callable[[str], object] | None = None,
    console_level: str = "INFO",
) -> Iterator[Log]:
    """
    Make a new log the current one inside the block.

    The first one in a process imports structlog; call ``load_structlog`` in a thread before.

    Args:
        write_line: Takes one JSON line, newline included; called on any thread, must not block.
        print_line: Takes one short line for a person; called likewise.

    Raises:
        ConfigError: A level has an unknown name.
    """
    sinks: list[_Sink] = [_Sink(level_number(file_level), lambda event: write_line(json_line(event)))]
    if print_line is not None:
        sinks.append(_Sink(level_number(console_level), lambda event: print_line(_console_line(event))))
    token = _current.set(_build_log(sinks))
    try:
        yield _current.get()
    finally:
        _current.reset(token)


def load_structlog() -> None:
    """Import structlog, which takes 0.1 s and reads files: too long for an event loop."""
    import structlog  # noqa: F401 - for its effect


def level_number(name: str) -> int:
    """
    Return the number of a level, whatever the case of its name.

    Raises:
        ConfigError: There is no such level.
    """
    number = LEVELS.get(name.upper())
    if number is None:
        hint = nearest(name.upper(), LEVELS)
        raise ConfigError(f"unknown log level {name!r}{hint} (valid: {', '.join(LEVELS)})")
    return number


def json_line(value: object) -> bytes:
    """Encode anything as one line of strict JSON: foreign values by their repr, lone surrogates replaced."""
    try:
        return msgspec.json.encode(value, enc_hook=_describe) + b"\n"
    except (UnicodeEncodeError, TypeError, RecursionError):
        return msgspec.json.encode(_clean(value, depth=8), enc_hook=_describe) + b"\n"


def _clean(value: object, *, depth: int) -> object:
    """Copy a value into what certainly has a JSON form."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case None | bool() | int() | float():
            return value
        case Mapping() if depth:
            return {_key(key): _clean(item, depth=depth - 1) for key, item in value.items()}
        case list() | tuple() if depth:
            return [_clean(item, depth=depth - 1) for item in value]
        case msgspec.Struct():
            return _clean(msgspec.to_builtins(value, enc_hook=_describe), depth=depth)
    return _clean(_describe(value), depth=0)


def _key(key: object) -> str:
    return str(_clean(key if isinstance(key, str) else _describe(key), depth=0))


def _describe(value: object) -> str:
    return str(value) if isinstance(value, PurePath) else repr(value)


class _Sink:
    """One destination and the level from which on it is served."""

    def __init__(self, level: int, write: Callable[[Mapping[str, object]], object]) -> None:
        self.level = level
        self._write = write

    def take(self, event: Mapping[str, object]) -> None:
        # A full disk, a closed console or a field whose repr raises: the caller has work to do, and there
        # is no other place to report it.
        with suppress(Exception):
            self._write(event)


def _build_log(sinks: list[_Sink]) -> Log:
    import structlog  # only a run pays for it

    level = min(sink.level for sink in sinks)
    processors: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _hand_out(sinks, drop=structlog.DropEvent),
    ]
    log: Log = structlog.wrap_logger(  # all given, so that the host's structlog configuration has no say
        structlog.ReturnLogger(),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        context_class=dict,
        cache_logger_on_first_use=False,
    ).bind()
    return log


def _hand_out(sinks: list[_Sink], *, drop: type[BaseException]) -> Processor:
    def hand_out(_logger: object, _method: str, event: MutableMapping[str, object]) -> NoReturn:
        name = str(event.get("level", "error"))
        for sink in sinks:
            if LEVELS.get(name.upper(), 0) >= sink.level:
                sink.take(event)
        raise drop  # the sinks are the end of the chain

    return hand_out


def _console_line(event: Mapping[str, object]) -> str:
    """Render an event for a person: local time, level, name, fields; of an exception its last line."""
    fields = {key: value for key, value in event.items() if key not in {"timestamp", "level", "event"}}
    if exception := fields.pop("exception", None):
        fields["error"] = fields.get("error", str(exception).strip().rpartition("\n")[2])
    words = [f"{key}={_field_text(value)}" for key, value in fields.items()]
    return " ".join([time.strftime("%H:%M:%S"), str(event["level"]), str(event["event"]), *words])


def _field_text(value: object) -> str:
    text = value if isinstance(value, str) else _describe(value)
    if len(text) > _CONSOLE_FIELD_CHARS:
        text = text[:_CONSOLE_FIELD_CHARS] + "…"
    return text if text and not any(char in text for char in " \t\n'\"=") else repr(text)
