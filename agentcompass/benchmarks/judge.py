"""
The program that judges a function inside a session; its text is sent there, so it needs only Python >= 3.8.

It forks at once. The *child* runs the untrusted code and answers calls of one function over a pipe; it
never sees the tests. The *driver* runs the trusted tests against a stand-in for that function, treats
whatever the child sends as plain data, and reports under a secret that only it was told.

Input (standard input, JSON): ``nonce``, ``prompt``, ``sources`` (alternatives; the first that compiles is
run), ``test``, ``entry_point``, ``timeout_seconds``. Output: JSON lines with the nonce and a ``status``:
``ready`` once nothing but the untrusted code can go wrong, then ``passed`` or ``failed``; or ``broken`` when
the trusted parts cannot be run.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import math
import os
import resource
import signal
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial

TYPE_CHECKING = False  # importing typing for it would cost milliseconds per judged answer
if TYPE_CHECKING:
    from typing import Any, BinaryIO, NoReturn

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_TOTAL_BYTES = 64 * 1024 * 1024
MAX_ITEMS = 1_000_000
MAX_MEMORY_BYTES = 4 * 1024**3
MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_TEXT = 500


# --- values on the pipe: data only ----------------------------------------------------------------


class Opaque:
    """Stands for an object that is no plain data; equal to nothing but itself."""


class Items(Opaque):
    """Stands for a container that is no list, such as a dict view or an array; has items and a length."""

    def __init__(self, items: list[object]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[object]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def encode(value: object) -> object:  # noqa: PLR0911  # one line a type
    """Turn a value into JSON; subclasses become their builtin, what is no plain data becomes a mark."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 1 << 53 else ["int", hex(value)]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else ["float", repr(float(value))]
    if isinstance(value, complex):
        return ["complex", encode(value.real), encode(value.imag)]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, range):
        return ["range", *map(encode, (value.start, value.stop, value.step))]
    return _encode_container(value)


def _encode_container(value: Any) -> object:
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return [kind.__name__, [encode(item) for item in value]]
    if isinstance(value, dict):
        return ["dict", [[encode(key), encode(item)] for key, item in value.items()]]
    if hasattr(value, "tolist"):  # numpy: a scalar is its value, an array no list
        plain = value.tolist()
        return ["items", [encode(item) for item in plain]] if isinstance(plain, list) else encode(plain)
    if isinstance(value, Iterator):
        return ["iterator", _encode_items(value)]
    if isinstance(value, (AbstractSet, Mapping, ValuesView)) or type(value).__name__ in {"deque", "array"}:
        return ["items", _encode_items(value)]
    return _encode_number(value)


def _encode_items(items: Iterable[object]) -> list[object]:
    encoded = []
    for item in items:
        encoded.append(encode(item))
        if len(encoded) > MAX_ITEMS:
            raise MemoryError("the result has too many items")
    return encoded


def _encode_number(value: object) -> object:
    kind = type(value)
    if kind.__module__ == "fractions" and hasattr(value, "numerator") and hasattr(value, "denominator"):
        return ["fraction", encode(value.numerator), encode(value.denominator)]
    if kind.__module__ == "decimal" and kind.__name__ == "Decimal":
        return ["decimal", str(value)]
    return ["opaque"]


def decode(data: Any) -> Any:
    """Rebuild what ``encode`` made; raises ValueError, TypeError or RecursionError on anything else."""
    if not isinstance(data, list):
        if isinstance(data, dict):
            raise TypeError("a bare object is no value")
        return data
    tag, *fields = data
    if tag in _SEQUENCES:
        return _SEQUENCES[tag]([decode(item) for item in fields[0]])
    if tag == "dict":
        return {decode(key): decode(item) for key, item in fields[0]}
    return _SCALARS[tag](*fields)


def _fraction(numerator: Any, denominator: Any) -> object:
    from fractions import Fraction

    return Fraction(decode(numerator), decode(denominator))


def _decimal(text: str) -> object:
    from decimal import Decimal

    return Decimal(text)


_SEQUENCES: dict[str, Callable[[list[object]], object]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "items": Items,
    "iterator": iter,
}
_SCALARS: dict[str, Callable[..., object]] = {
    "int": lambda text: int(text, 16),
    "float": float,
    "complex": lambda real, imag: complex(decode(real), decode(imag)),
    "bytes": bytes.fromhex,
    "range": lambda *bounds: range(*map(decode, bounds)),
    "fraction": _fraction,
    "decimal": _decimal,
    "opaque": Opaque,
}


# --- the child: runs the untrusted code -----------------------------------------------------------


def serve(requests: int, replies: int) -> None:
    """Load the program that comes first, then answer calls until the pipe closes."""
    _leave_driver({requests, replies})
    with os.fdopen(requests, "rb") as lines, os.fdopen(replies, "wb") as out:
        program = json.loads(lines.readline())
        _limit(program["timeout_seconds"])
        functions: list[Callable[..., object]] = []
        _reply(out, lambda: functions.append(_load(program)))
        for line in lines:
            request = json.loads(line)
            _reply(out, partial(_call, functions[0], request))


def _leave_driver(keep: set[int]) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    for name in os.listdir("/dev/fd"):  # noqa: PTH208  # pathlib would cost milliseconds to import
        if int(name) > 2 and int(name) not in keep:
            with suppress(OSError):  # the listing's own descriptor is gone by now
                os.close(int(name))
    sys.argv = [""]


def _limit(timeout_seconds: float) -> None:
    limits = (
        (resource.RLIMIT_AS, MAX_MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, math.ceil(timeout_seconds) + 1),  # also ends what escapes its process group
    )
    for which, limit in limits:
        with suppress(ValueError, OSError):  # a stricter limit is in force, or the system has none
            resource.setrlimit(which, (limit, limit))


def _load(program: dict[str, Any]) -> Callable[..., object]:
    module = types.ModuleType("solution")
    sys.modules["solution"] = module  # dataclasses and pickle look their module up
    exec(compile(program["prompt"], "prompt", "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    exec(_compile_first(program["sources"]), module.__dict__)  # noqa: S102
    function: Callable[..., object] = getattr(module, program["entry_point"])
    if not callable(function):
        raise TypeError(f"{program['entry_point']} is no function")
    return function


def _compile_first(sources: list[str]) -> types.CodeType:
    first: Exception | None = None
    for source in sources:
        try:
            return compile(source, "answer", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            first = first or error
    raise first or SyntaxError("there is no code")


def _call(function: Callable[..., object], request: dict[str, Any]) -> object:
    return encode(function(*decode(request["args"]), **decode(request["kwargs"])))


def _reply(out: BinaryIO, work: Callable[[], object]) -> None:
    try:
        message: dict[str, object] = {"value": work()}
    except BaseException as error:  # noqa: BLE001  # the driver decides what an error means
        message = {"error": [_builtin(error).__name__, _message(error)]}
    out.write(json.dumps(message).encode() + b"\n")
    out.flush()


def _builtin(error: BaseException) -> type[BaseException]:
    return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


def _message(error: BaseException) -> str:
    own = "" if type(error) is _builtin(error) else type(error).__name__
    try:
        text = str(error)[:MAX_TEXT]
    except BaseException:  # noqa: BLE001  # a hostile __str__
        text = "without a message"
    return f"{own}: {text}" if own else text


# --- the driver: runs the trusted tests -----------------------------------------------------------


class ChildBrokeError(BaseException):
    """The untrusted side broke the protocol; no ``except Exception`` of a test catches it."""


class Child:
    """The driver's end of the pipes."""

    def __init__(self, requests: int, replies: int, pid: int) -> None:
        self.pid = pid
        self.broken = ""
        self._requests = os.fdopen(requests, "wb")
        self._replies = os.fdopen(replies, "rb")
        self._received_bytes = 0

    def start(self, payload: dict[str, Any]) -> None:
        """Hand over the program; the tests and the nonce stay here."""
        visible = ("prompt", "sources", "entry_point", "timeout_seconds")
        message = self._exchange({key: payload[key] for key in visible})
        if "error" in message:
            self.fail(f"the program cannot be run: {': '.join(_error_of(message))}")

    def call(self, *args: object, **kwargs: object) -> object:
        """Call the function; what it raises is raised here as the nearest builtin exception."""
        message = self._exchange({"args": encode(list(args)), "kwargs": encode(kwargs)})
        if "error" in message:
            self._raise(*_error_of(message))
        try:
            return decode(message["value"])
        except Exception as error:  # noqa: BLE001  # whatever hostile data can cause
            self.fail(f"the program sent no valid result: {type(error).__name__}")

    def fail(self, reason: str) -> NoReturn:
        """Mark the verdict as failed, even if a test swallows the exception."""
        self.broken = self.broken or reason
        raise ChildBrokeError(self.broken)

    def end(self) -> None:
        """Kill the child's process group."""
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(OSError):
            os.waitpid(self.pid, 0)

    def _exchange(self, request: object) -> dict[str, Any]:
        line = b""
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
            line = self._replies.readline(MAX_MESSAGE_BYTES)
        except OSError:
            pass
        self._received_bytes += len(line)
        if not line:
            self.fail("the program ended before it was judged")
        if not line.endswith(b"\n") or self._received_bytes > MAX_TOTAL_BYTES:
            self.fail("the program sent too much")
        return self._parse(line)

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or len(message.keys() & {"value", "error"}) != 1:
            self.fail("the program broke the protocol")
        return message

    def _raise(self, name: str, text: str) -> NoReturn:
        kind = getattr(builtins, name, None)
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            self.fail(f"the program raised {name}: {text}")
        for base in kind.__mro__:
            with suppress(TypeError):  # some need more than a message
                error = base(text)
                break
        raise error


def _error_of(message: dict[str, object]) -> tuple[str, str]:
    error = message["error"]
    if isinstance(error, list) and len(error) == 2:
        return str(error[0]), str(error[1])[:MAX_TEXT]
    return "", "something unknown"


def judge(payload: dict[str, Any], child: Child, report: Callable[[str, str], None]) -> None:
    """Run the tests against the child and report."""
    try:
        namespace: dict[str, Any] = {"__name__": "test"}
        exec(payload["prompt"], namespace)  # noqa: S102  # some tests call functions of the prompt
        namespace[payload["entry_point"]] = child.call  # and some the function by its name
        exec(payload["test"], namespace)  # noqa: S102
        check = namespace["check"]
    except Exception as error:  # noqa: BLE001  # said to be trusted, but a person may have written it
        return report("broken", f"the prompt and test of the task cannot be run: {_named(error)}")
    report("ready", "")
    reason = _run_check(check, payload, child)
    child.end()
    return report("failed" if reason else "passed", reason)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_TEXT].rstrip(": ")


def _run_check(check: Callable[..., object], payload: dict[str, Any], child: Child) -> str:
    _set_alarm(child, payload["timeout_seconds"])
    try:
        child.start(payload)
        check(child.call)
    except (Exception, ChildBrokeError) as error:  # noqa: BLE001  # any way to fail a test
        reason = child.broken or f"the test failed: {_named(error)}"
    else:
        reason = child.broken
    signal.setitimer(signal.ITIMER_REAL, 0)
    return reason


def _set_alarm(child: Child, seconds: float) -> None:
    def on_alarm(_signal: int, _frame: object) -> None:
        child.fail(f"not done within {seconds:g} s")

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again, in case a test swallows the first


# --- hardening ------------------------------------------------------------------------------------

_FILE_CAPABILITIES = 0b11111  # chown, dac_override, dac_read_search, fowner, fsetid
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522


def drop_privileges() -> None:
    """Give up, if root, whatever would let the child look into the driver."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) == 0:
        for index in range(6):
            sets[index] &= _FILE_CAPABILITIES if index in {0, 1} else 0  # effective and permitted, low words
        libc.capset(header, sets)


def hide_memory() -> None:
    """Keep other processes of the same user out of this one's memory and descriptors."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def main() -> None:
    """Fork the child before any secret is read, then judge it."""
    on_linux = sys.platform == "linux"
    if on_linux:
        drop_privileges()
    requests, replies = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            serve(requests[0], replies[1])
        finally:
            os._exit(1)
    os.close(requests[0])
    os.close(replies[1])
    if on_linux:
        hide_memory()
    payload = json.loads(sys.stdin.buffer.read())
    out, sys.stdout = sys.stdout, sys.stderr  # tests may print

    def report(status: str, reason: str) -> None:
        message = {"nonce": payload["nonce"], "status": status, "reason": reason}
        out.write(json.dumps(message) + "\n")
        out.flush()

    child = Child(requests[1], replies[0], pid)
    try:
        judge(payload, child, report)
    finally:
        child.end()


if __name__ == "__main__":
    main()
