"""Every error the engine raises on purpose, and what each means for a trial's outcome."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar, Literal, NamedTuple

Phase = Literal["plan", "open", "prepare", "agent", "verify", "close"]
"""Where in a trial something happened."""


def nearest(wrong: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known name, or an empty string."""
    matches = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""


class CompassError(Exception):
    """Base of all errors of this package."""


class Finding(NamedTuple):
    """
    One thing that is wrong with the input.

    Args:
        path: Keys and indices that lead to it.
        text: What is wrong, what was given, and what is allowed.
    """

    path: tuple[str | int, ...]
    text: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {self.text}" if self.path else self.text


class ConfigError(CompassError):
    """
    The input is wrong; nothing has started and nothing was written.

    Args:
        findings: What is wrong one by one, where that is known.
    """

    def __init__(self, message: str, *, findings: Iterable[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class UnknownComponentError(ConfigError):
    """No component of that kind has that id."""

    def __init__(self, kind: str, component_id: str, known: Iterable[str]) -> None:
        names = sorted(known)
        listing = ", ".join(names) or "none"
        message = f"unknown {kind} {component_id!r}{nearest(component_id, names)} (available: {listing})"
        super().__init__(message, findings=[Finding((kind,), message)])
        self.kind = kind
        self.component_id = component_id
        self.known = names


class StoreError(CompassError):
    """The run directory cannot be written or read; the orchestration stops taking work."""


class OutageError(CompassError):
    """A request gave up because its infrastructure stayed down for too long."""


class TrialError(CompassError):
    """
    One trial could not be carried through.

    Args:
        message: A sentence that names the thing and the way out.
        phase: Where it happened; the engine fills in the current phase when it is None.
        retryable: Whether another trial may succeed; None keeps the default of the class.
    """

    agent_fault: ClassVar[bool] = False
    """True: counts as a failed attempt. False: the result is missing data."""

    default_retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, phase: Phase | None = None, retryable: bool | None = None) -> None:
        super().__init__(message)
        self.phase = phase
        self.retryable = self.default_retryable if retryable is None else retryable


class SessionError(TrialError):
    """An environment or one of its sessions failed."""

    default_retryable = True


class SessionOpenError(SessionError):
    """A session could not be opened."""


class SessionLostError(SessionError):
    """
    The machine behind a session is gone.

    Args:
        cause: What ended it, e.g. ``"out of memory"`` or ``"removed"``.
    """

    def __init__(self, cause: str) -> None:
        super().__init__(f"the session is gone: {cause}")
        self.cause = cause


class ExecError(SessionError):
    """A command could not be started at all (as opposed to one that fails)."""


class TransferError(SessionError):
    """A file could not be copied into or out of a session."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"could not copy {path!r}: {reason}")
        self.path = path


class SessionFileNotFoundError(TransferError):
    """The file to read or download does not exist in the session."""

    default_retryable = False

    def __init__(self, path: str) -> None:
        super().__init__(path, "no such file in the session")


class HarnessError(TrialError):
    """The agent program broke; the attempt counts as failed."""

    agent_fault = True


class ModelError(TrialError):
    """
    A model call failed.

    Args:
        retry_after_seconds: The pause that the endpoint asked for, if it did.
    """

    default_retryable = True

    def __init__(
        self,
        message: str,
        *,
        phase: Phase | None = None,
        retryable: bool | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message, phase=phase, retryable=retryable)
        self.retry_after_seconds = retry_after_seconds


class RateLimitedError(ModelError):
    """The endpoint refused the call because of a rate limit or a quota."""


class ModelUnavailableError(ModelError):
    """The endpoint could not be reached, broke off, stayed silent or answered with a server error."""


class ModelAuthError(ModelError):
    """The endpoint refused the key."""

    default_retryable = False


class ModelRequestError(ModelError):
    """The endpoint calls the request itself wrong (unknown model, bad parameter)."""

    default_retryable = False


class ContextTooLongError(ModelError):
    """The prompt does not fit the model's context; the attempt counts as failed."""

    agent_fault = True
    default_retryable = False


class ModelReplyError(ModelError):
    """The endpoint answered, but not with a usable reply (no choices, no content); counts as failed."""

    agent_fault = True


class VerifierError(TrialError):
    """The verifier's machinery failed; says nothing about the answer."""


class PhaseTimeoutError(TrialError):
    """Set-up or verification took longer than its deadline."""

    def __init__(self, phase: Phase, seconds: float) -> None:
        super().__init__(f"the {phase} phase took longer than {seconds:g} s", phase=phase)
        self.seconds = seconds
