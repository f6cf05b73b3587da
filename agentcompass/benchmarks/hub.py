"""
Fetch the file of a data set from the Hugging Face hub, once, into a cache.

Blocks, since benchmarks are loaded in a worker process. What is in the file is its benchmark's matter.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from errno import ENOLCK, ENOSYS, EOPNOTSUPP
from pathlib import Path, PureWindowsPath
from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec

from .._version import __version__
from ..errors import ConfigError

if sys.platform != "win32":
    import fcntl

_HUB = "https://huggingface.co"
_IDLE_SECONDS = 60.0
"""How long the hub may stay silent before a try counts as broken."""
_RETRIES = 5
_PASSING = {408, 429}
"""Complaints that don't last, though they blame the client."""
_BASE_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 60.0
_OWN_SUFFIXES = (".lock", ".part", ".part.json", ".json.new")
"""What the cache puts beside a file, apart from its record."""
_NO_LOCKS_HERE = {ENOLCK, EOPNOTSUPP, ENOSYS}
"""Some network file systems; then several processes may download the same file."""

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_STRONG_ETAG = re.compile(r'"[!#-~]*"')
"""The only kind that ``If-Range`` may be given; a weak one doesn't promise the same bytes."""
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """
    A file in a data set repository of the hub.

    Args:
        repo: Owner and name.
        revision: A commit, tag or branch; what was fetched of a branch stays as it was then.
        path: Where it is in the repository.
        sha256: The hash it must have; empty to believe what the hub says.
    """

    repo: str
    revision: str
    path: str
    sha256: str = ""


def fetch(
    file: HubFile,
    data_dir: Path,
    *,
    sleep: Callable[[float], None] = time.sleep,
    _idle_seconds: float = _IDLE_SECONDS,
) -> Path:
    """
    Return the local path of a file of the hub, downloading it at most once.

    Waits for another process that downloads it, and goes on where one broke off. ``HF_ENDPOINT``,
    ``HF_TOKEN``, ``HF_HUB_OFFLINE`` and ``HF_DATASETS_OFFLINE`` mean what they do elsewhere.

    Raises:
        ConfigError: It is not there and cannot be had; says what to do.
    """
    if file.sha256 and not _SHA256.fullmatch(file.sha256):
        raise ConfigError(f"{file.sha256!r} is no sha256: it takes 64 hexadecimal digits")
    place = _place(file, data_dir)
    try:
        if not _is_cached(file, place):
            _fetch_missing(file, place, sleep=sleep, idle_seconds=_idle_seconds)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"cannot keep {place.path.name!r} in '{place.path.parent}': {reason}; "
            "repair that, choose another data directory, or set `data_path` to a copy of the file"
        ) from error
    return place.path


@dataclass(frozen=True, slots=True)
class _Download:
    """What all tries of one download share."""

    file: HubFile
    place: _Place
    url: str
    client: httpx.Client
    sleep: Callable[[float], None]
    retries: Iterator[int]


def _fetch_missing(
    file: HubFile, place: _Place, *, sleep: Callable[[float], None], idle_seconds: float
) -> None:
    endpoint = _endpoint()
    url = _url(endpoint, file)
    if _is_offline():
        reason = "HF_HUB_OFFLINE or HF_DATASETS_OFFLINE forbids to download it"
        raise _unavailable(file, place, url, reason)
    place.path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.lock):
        if _is_cached(file, place):  # another process was faster
            return
        with _open_client(endpoint, idle_seconds) as client:
            _download(_Download(file, place, url, client, sleep, iter(range(_RETRIES))))


# --- the cache ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a file, and what is known of it, is cached."""

    path: Path

    @property
    def record(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    @property
    def part(self) -> Path:
        return self.path.with_name(f"{self.path.name}.part")

    @property
    def part_record(self) -> Path:
        return self.path.with_name(f"{self.path.name}.part.json")

    @property
    def lock(self) -> Path:
        return self.path.with_name(f"{self.path.name}.lock")


class _Record(msgspec.Struct, frozen=True):
    """Where a cached file came from, and what it was then."""

    url: str
    repo: str
    revision: str
    path: str
    sha256: str
    size_bytes: int = msgspec.field(name="bytes")
    fetched_at: str


class _PartRecord(msgspec.Struct, frozen=True):
    """Which version of a file a part is of."""

    etag: str


def _place(file: HubFile, data_dir: Path) -> _Place:
    repo = "--".join(_parts("repo", file.repo))
    revision = "--".join(_parts("revision", file.revision))
    parts = _parts("path", file.path)
    if parts[-1].endswith(_OWN_SUFFIXES):
        raise ConfigError(f"cannot cache {file.path!r}: the cache uses names like that for itself")
    return _Place(data_dir.joinpath("hub", repo, revision, *parts))


def _parts(what: str, name: str) -> list[str]:
    """Split a name at its slashes; none of the parts means another directory, on any system."""
    parts = name.split("/")
    for part in parts:
        if not part.strip(". ") or not part.isprintable() or PureWindowsPath(part).name != part:
            raise ConfigError(f"the {what} {name!r} of a file of the hub must be plain names between slashes")
    return parts


def _is_cached(file: HubFile, place: _Place) -> bool:
    """Tell whether the file is there and is what it should be: by its pinned hash, or else by its record."""
    if not place.path.is_file():
        return False
    actual = _sha256(place.path)
    if file.sha256:
        return actual == file.sha256.lower()
    if not place.record.exists():
        # Put there by hand, unless it is the record of the file "x" where the file "x.json" should be.
        return _decode(place.path, _Record) is None
    record = _decode(place.record, _Record)
    return record is not None and _is_described(file, record) and record.sha256 == actual


def _is_described(file: HubFile, record: _Record) -> bool:
    """Tell whether a record is of this file: of two repositories "a/b" and "a--b" the places are the same."""
    return (record.repo, record.revision, record.path) == (file.repo, file.revision, file.path)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _decode(path: Path, kind: type[_T]) -> _T | None:
    """Read what this module wrote; None if it is not there, or something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other process is in here; the kernel lets go of the lock of one that died."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise


# --- the download ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """The beginning of a file that an earlier try has left."""

    etag: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Whole:
    """All has arrived; it must have the hash, if one is known."""

    sha256: str


@dataclass(frozen=True, slots=True)
class _Stale:
    """The part cannot be continued."""


@dataclass(frozen=True, slots=True)
class _Broken:
    """The try failed, another may succeed."""

    reason: str
    pause_seconds: float | None = None
    """What the server asked for."""


def _download(download: _Download) -> None:
    place, expected, actual = download.place, "", ""
    for _ in range(2):
        expected = _transfer(download)
        actual = _sha256(place.part)
        if actual == (expected or actual):
            _keep(download, actual)
            return
        _drop_part(place)
    raise ConfigError(
        f"{_name(download.file)} should have the sha256 {expected}, but what {download.url} sends has "
        f"{actual}; correct the pinned sha256 or the revision, or {_ways_out(download.file, place)}"
    )


def _keep(download: _Download, sha256: str) -> None:
    """
    Make the part the file.

    The record goes first: until the rename, it does not match a file that is already there, so a crash
    between the two cannot make a wrong file look right.
    """
    file, place = download.file, download.place
    record = _Record(
        url=download.url,
        repo=file.repo,
        revision=file.revision,
        path=file.path,
        sha256=sha256,
        size_bytes=place.part.stat().st_size,
        fetched_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    _write_whole(place.record, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    place.part.replace(place.path)
    place.part_record.unlink(missing_ok=True)


def _write_whole(path: Path, data: bytes) -> None:
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(path)


def _transfer(download: _Download) -> str:
    """Complete the part, in as many tries as are left; return the hash it must have, if one is known."""
    while True:
        match _try(download):
            case _Whole(sha256):
                return sha256
            case _Broken(reason, pause_seconds):
                retry = next(download.retries, None)
                if retry is None:
                    raise _unavailable(download.file, download.place, download.url, reason)
                download.sleep(_backoff_seconds(retry) if pause_seconds is None else pause_seconds)


def _try(download: _Download) -> _Whole | _Broken:
    match _request(download, _left_part(download.place)):
        case _Stale():
            _drop_part(download.place)
            return _try(download)  # at most once: without a part, nothing is stale
        case outcome:
            return outcome


def _left_part(place: _Place) -> _Part | None:
    """Look for something to continue: there is nothing without an ETag that promises the same bytes."""
    record = _decode(place.part_record, _PartRecord)
    if record is None or not _STRONG_ETAG.fullmatch(record.etag) or not place.part.is_file():
        return None
    size_bytes = place.part.stat().st_size
    return _Part(record.etag, size_bytes) if size_bytes else None


def _drop_part(place: _Place) -> None:
    place.part_record.unlink(missing_ok=True)
    place.part.unlink(missing_ok=True)


def _request(download: _Download, part: _Part | None) -> _Whole | _Stale | _Broken:
    headers = {"Range": f"bytes={part.size_bytes}-", "If-Range": part.etag} if part else {}
    try:
        with download.client.stream("GET", download.url, headers=headers) as response:
            return _take(download, response, part)
    except (httpx.RequestError, UnicodeError) as error:  # the latter: a host name that cannot be looked up
        return _Broken(str(error) or type(error).__name__)


def _take(download: _Download, response: httpx.Response, part: _Part | None) -> _Whole | _Stale | _Broken:
    match response.status_code:
        case 200:
            return _store(download, response, offset=0, total=_length(response))
        case 206 if part:
            return _continue(download, response, part)
        case 416 if part:
            return _Stale()
        case status if status in _PASSING or status >= 500:
            return _Broken(f"it answered with status {status}", _retry_after_seconds(response))
    raise _refusal(download, response.status_code)


def _continue(download: _Download, response: httpx.Response, part: _Part) -> _Whole | _Stale | _Broken:
    """Append to the part, if this is what comes after it; some servers don't know ``If-Range``."""
    span = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    same_version = response.headers.get("ETag", part.etag) == part.etag
    if span is None or int(span[1]) != part.size_bytes or not same_version:
        return _Stale()
    total = None if span[2] == "*" else int(span[2])
    return _store(download, response, offset=part.size_bytes, total=total)


def _store(
    download: _Download, response: httpx.Response, *, offset: int, total: int | None
) -> _Whole | _Broken:
    place, expected = download.place, download.file.sha256.lower() or _linked_sha256(response)
    _check_framing(download, response, is_verifiable=total is not None or bool(expected))
    if not offset:
        _begin_part(place, response.headers.get("ETag", ""))
    with place.part.open("ab") as out, _progress(place.path.name, offset, total) as advance:
        for chunk in response.iter_raw():
            out.write(chunk)
            advance(len(chunk))
        out.flush()
        os.fsync(out.fileno())
    size_bytes = place.part.stat().st_size
    if total is not None and size_bytes != total:
        return _Broken(f"it sent {size_bytes} of {total} bytes")
    return _Whole(expected)


def _check_framing(download: _Download, response: httpx.Response, *, is_verifiable: bool) -> None:
    """Refuse what is not the bare file, and what would pass for whole if the connection ended early."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        reason = f"it sends it as {encoding[:20]!r}, though asked not to"
        raise _unavailable(download.file, download.place, download.url, reason)
    if not is_verifiable and "Transfer-Encoding" not in response.headers:
        reason = "it tells neither its length nor its hash (a pinned sha256 would do)"
        raise _unavailable(download.file, download.place, download.url, reason)


def _begin_part(place: _Place, etag: str) -> None:
    """Empty the part before its new version is noted: never the old bytes under the new ETag."""
    place.part_record.unlink(missing_ok=True)
    place.part.write_bytes(b"")
    place.part_record.write_bytes(msgspec.json.encode(_PartRecord(etag)))


@contextmanager
def _progress(name: str, done_bytes: int, total_bytes: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar to a person at a terminal; gives what moves it."""
    if not sys.stderr or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    console = Console(file=sys.stderr)
    with Progress(
        *columns, TimeRemainingColumn(), console=console, redirect_stdout=False, redirect_stderr=False
    ) as progress:
        task = progress.add_task(name, total=total_bytes, completed=done_bytes)
        yield lambda size_bytes: progress.advance(task, size_bytes)


# --- HTTP -----------------------------------------------------------------------------------------


def _is_offline() -> bool:
    values = (os.environ.get(name, "") for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"))
    return any(value.strip().lower() in {"1", "true", "yes", "on"} for value in values)


def _endpoint() -> httpx.URL:
    """Read ``HF_ENDPOINT``; what is wrong with it is not shown, as it may hold a password."""
    try:
        url = httpx.URL(os.environ.get("HF_ENDPOINT", "").strip() or _HUB)
    except httpx.InvalidURL:
        raise ConfigError("HF_ENDPOINT is no valid URL") from None
    if url.scheme not in {"http", "https"} or not url.raw_host or url.query or url.fragment:
        raise ConfigError("HF_ENDPOINT must be an http or https URL without a query, like " + _HUB)
    return url


def _url(endpoint: httpx.URL, file: HubFile) -> str:
    base = str(endpoint.copy_with(userinfo=b"")).rstrip("/")
    revision = quote(file.revision, safe="")
    return f"{base}/datasets/{quote(file.repo)}/resolve/{revision}/{quote(file.path)}"


def _token() -> str:
    token = os.environ.get("HF_TOKEN", "").strip()
    if token and not re.fullmatch(r"[!-~]+", token):
        raise ConfigError("HF_TOKEN contains characters that no token has")
    return token


@contextmanager
def _open_client(endpoint: httpx.URL, idle_seconds: float) -> Iterator[httpx.Client]:
    token = _token()
    headers = {"Accept-Encoding": "identity", "User-Agent": f"agentcompass/{__version__}"}
    auth = httpx.BasicAuth(endpoint.username, endpoint.password) if endpoint.userinfo else None
    if token:
        headers["Authorization"], auth = f"Bearer {token}", None
    try:
        client = httpx.Client(headers=headers, auth=auth, timeout=idle_seconds, follow_redirects=True)
    except (OSError, ValueError, ImportError, httpx.InvalidURL) as error:
        raise ConfigError(
            f"cannot prepare a connection to {endpoint.raw_host.decode()} ({type(error).__name__}); check "
            "what the environment says of proxies (HTTPS_PROXY, ALL_PROXY) and certificates (SSL_CERT_FILE)"
        ) from error
    with client:
        yield client


def _linked_sha256(response: httpx.Response) -> str:
    """Return the hash that the hub itself gives, not where it redirects to; empty if it gives none."""
    chain = [*response.history, response]
    for hop in chain:  # a renamed repository redirects within the hub at first
        value = str(hop.headers.get("X-Linked-ETag", "")).strip('"')
        if hop.url.netloc == chain[0].url.netloc and _SHA256.fullmatch(value):
            return value.lower()
    return ""


def _length(response: httpx.Response) -> int | None:
    value = response.headers.get("Content-Length", "")
    return int(value) if re.fullmatch(r"[0-9]{1,18}", value) else None


def _backoff_seconds(retry: int) -> float:
    ceiling = min(_MAX_PAUSE_SECONDS, _BASE_PAUSE_SECONDS * 2.0**retry)
    return random.uniform(ceiling / 2, ceiling)  # noqa: S311


def _retry_after_seconds(response: httpx.Response) -> float | None:
    """Return the pause that the server asks for, capped; None if it asks for none that makes sense."""
    value = response.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
        return min(float(value), _MAX_PAUSE_SECONDS)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time()
    return min(seconds, _MAX_PAUSE_SECONDS) if seconds >= 0 else None


# --- what to do -----------------------------------------------------------------------------------


def _refusal(download: _Download, status: int) -> ConfigError:
    file = download.file
    match status:
        case 401 | 403:
            page = download.url.partition("/resolve/")[0]
            return ConfigError(
                f"the hub answered with status {status} to {download.url}: set HF_TOKEN to a token that may "
                f"read {file.repo!r}, and accept the terms on {page}, if there are any"
            )
        case 404:
            return ConfigError(
                f"there is no file {file.path!r} in revision {file.revision!r} of the data set {file.repo!r} "
                f"({download.url} answered with status 404)"
            )
    reason = f"it answered with status {status}"
    return _unavailable(file, download.place, download.url, reason)


def _unavailable(file: HubFile, place: _Place, url: str, reason: str) -> ConfigError:
    return ConfigError(f"cannot get {_name(file)} from {url}: {reason}; {_ways_out(file, place)}")


def _name(file: HubFile) -> str:
    return f"{file.path!r} of {file.repo!r}"


def _ways_out(file: HubFile, place: _Place) -> str:
    advice = f"put the file at '{place.path}' by hand, or set `data_path` to a copy of it"
    if not place.path.exists():
        return advice
    if file.sha256:
        return f"{advice} (the file there now has not the sha256 {file.sha256})"
    return f"{advice} (the file there now differs from what '{place.record}' says; remove both)"
