"""
Where everything of a run lies: path-safe names, run ids, and the reservation of run directories.

Names are made so that two different texts never share a path, not even on file systems that ignore case
or normalise Unicode; the full text always stands inside the records.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
import unicodedata
from pathlib import Path

from ..errors import ConfigError
from ..records import RunPaths

RUN_FILE = "run.json"
JOURNAL_FILE = "attempts.jsonl"
LOCK_FILE = "run.lock"
SNAPSHOT_FILE = "progress.json"

_SLUG_BYTES = 80
_PART_BYTES = 56  # four parts and their separators stay below the 255 bytes of a file name
_HASH_DIGITS = 12
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]+")
_LOOKS_HASHED = re.compile(rf"-[0-9a-f]{{{_HASH_DIGITS}}}$")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_DIGITS = "234567abcdefghijklmnopqrstuvwxyz"  # in the order of their codes


# --- names ----------------------------------------------------------------------------------------


def slug(text: str, *, max_bytes: int = _SLUG_BYTES) -> str:
    """
    Make a readable file name that no other text gets.

    A short lower-case text of ``a-z 0-9 . _ -`` is its own slug. Anything else (a character replaced,
    a cut, upper case, a name that some system reserves) gets a hash of the whole text as its suffix.
    """
    readable = _readable(text)[:max_bytes].strip("._-")
    if text and readable == text and text == text.lower() and not _LOOKS_HASHED.search(text):
        return text
    return _hashed(text, max_bytes=max_bytes)


def namespace(model: str, benchmark: str, harness: str, environment: str) -> str:
    """Name the folder that holds the runs of one combination."""
    return "__".join(_part(text) for text in (model, benchmark, harness, environment))


def _part(text: str) -> str:
    """Make one part of a namespace; its own underscores must not be mistaken for the separator."""
    ambiguous = "__" in text or text.startswith("_") or text.endswith("_")
    make = _hashed if ambiguous else slug
    return make(text, max_bytes=_PART_BYTES)


def _readable(text: str) -> str:
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    readable = _FORBIDDEN.sub("-", ascii_text)
    return f"x-{readable}" if _RESERVED.match(readable) else readable


def _hashed(text: str, *, max_bytes: int) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    readable = _readable(text)[: max_bytes - _HASH_DIGITS - 1].strip("._-")
    return f"{readable or 'x'}-{digest}"


# --- run directories ------------------------------------------------------------------------------


def run_paths(run_dir: Path) -> RunPaths:
    """Name the files of a run."""
    base = Path(os.path.abspath(run_dir))  # noqa: PTH100 -- `resolve` would follow the user's links
    return RunPaths(
        run_dir=str(base),
        run_json=str(base / RUN_FILE),
        journal=str(base / JOURNAL_FILE),
        details=str(base / "details"),
        artifacts=str(base / "artifacts"),
        metrics=str(base / "metrics.json"),
        summary=str(base / "summary.md"),
        progress=str(base / "progress.jsonl"),
        log=str(base / "run.log"),
    )


def detail_path(task_id: str, *, attempt: int, trial: int) -> str:
    """
    Name a trial's detail file, relative to the run directory.

    The first trial's name carries task and attempt only; retries add ``.t<trial>``, so that the evidence
    of each trial stays.
    """
    return f"details/{slug(task_id)}.{attempt}{_trial_suffix(trial)}.json"


def artifact_path(task_id: str, name: str, *, attempt: int, trial: int) -> str:
    """Name the file of one artifact, relative to the run directory."""
    return f"{artifact_dir(task_id, attempt=attempt, trial=trial)}/{slug(name)}"


def artifact_dir(task_id: str, *, attempt: int, trial: int) -> str:
    """Name the folder of a trial's artifacts, relative to the run directory."""
    return f"artifacts/{slug(task_id)}/{attempt}{_trial_suffix(trial)}"


def _trial_suffix(trial: int) -> str:
    return f".t{trial}" if trial > 1 else ""


def reserve_run_dir(results_dir: Path, name: str, *, run_id: str | None = None) -> Path:
    """
    Create a run directory that nobody else has, and return its absolute path; its name is the run id.

    Args:
        results_dir: Created with its parents if need be.
        name: The namespace.
        run_id: The id to use; None makes one from the time and chance.

    Raises:
        ConfigError: The directory cannot be made, or there are results in it.
    """
    if run_id is not None:
        check_run_id(run_id)
    parent = Path(os.path.abspath(results_dir)) / name  # noqa: PTH100 -- keeps the user's links
    try:
        parent.mkdir(parents=True, exist_ok=True)
        run_dir = _make_new(parent, run_id)
        sync_dirs(run_dir.parent, parent.parent)
    except OSError as error:
        raise ConfigError(
            f"cannot create a run directory in {str(parent)!r}: {error.strerror}; "
            "choose a writable results_dir"
        ) from error
    return run_dir


def check_run_id(run_id: str) -> None:
    """
    Refuse a run id that is not a plain file name.

    Raises:
        ConfigError: It is not.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise ConfigError(
            f"run_id {run_id!r} is not a plain name of at most 80 letters, digits, '.', '_', '-'"
        )


def _make_new(parent: Path, run_id: str | None) -> Path:
    """Let ``mkdir`` decide who gets a name: it is atomic, also between processes and machines."""
    while True:
        run_dir = parent / (run_id or _new_run_id())
        try:
            run_dir.mkdir()
        except FileExistsError:
            if run_id is None:
                continue
            _refuse_results(run_dir)
        return run_dir


def _refuse_results(run_dir: Path) -> None:
    """Let a directory be taken over only when its run died before it had written anything."""
    journal = run_dir / JOURNAL_FILE
    if (run_dir / RUN_FILE).exists() or (journal.exists() and journal.stat().st_size) or not run_dir.is_dir():
        raise ConfigError(f"there are results in {str(run_dir)!r} already; choose another run_id")


def _new_run_id() -> str:
    """Make an id whose alphabetical order is the order of time."""
    now = time.time_ns()
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now // 10**9))
    high, low = divmod(now // 10**6 % 1000, len(_DIGITS))
    return f"{stamp}-{_DIGITS[high]}{_DIGITS[low]}{''.join(secrets.choice(_DIGITS) for _ in range(6))}"


def sync_dirs(*directories: Path) -> None:
    """Make new names in the directories survive a power cut."""
    for directory in directories:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
