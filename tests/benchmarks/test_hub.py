"""The cache of hub files, against real servers that break off, redirect, refuse, lie and fall silent."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import io
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest

from agentcompass.benchmarks.hub import HubFile, fetch
from agentcompass.errors import ConfigError

CONTENT = bytes(range(256)) * 40
HALF = len(CONTENT) // 2
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OTHER_SHA256 = hashlib.sha256(b"something else").hexdigest()
ETAG = '"version-1"'
TOKEN = "hf_Secret0123456789"
FILE = HubFile(repo="org/set", revision="main", path="data/test.parquet")
PINNED = replace(FILE, sha256=SHA256)
URL_PATH = "/datasets/org/set/resolve/main/data/test.parquet"
WAIT_SECONDS = 10.0

Reply = Callable[["Handler"], None]


class Server(ThreadingHTTPServer):
    """Gives one scripted reply per request, then serves the content as the hub's storage does."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies: deque[Reply] = deque()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.arrived = threading.Semaphore(0)
        self.may_go_on = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def ranges(self) -> list[str | None]:
        return [headers.get("range") for _, headers in self.requests]

    def handle_error(self, request: object, client_address: object) -> None:
        """Stay quiet about clients that hang up."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = WAIT_SECONDS
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        server.arrived.release()
        reply = server.replies.popleft() if server.replies else whole
        reply(self)

    def head(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay quiet."""


def whole(handler: Handler, content: bytes = CONTENT, etag: str = ETAG) -> None:
    """Answer like a good server, ranges included."""
    span = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    start = int(span[1]) if span and handler.headers.get("If-Range", etag) == etag else 0
    rest = content[start:]
    if start:
        content_range = f"bytes {start}-{len(content) - 1}/{len(content)}"
        handler.head(206, ETag=etag, Content_Length=len(rest), Content_Range=content_range)
    else:
        handler.head(200, ETag=etag, Content_Length=len(rest))
    handler.wfile.write(rest)


def sends(content: bytes, **headers: object) -> Reply:
    """Send this with status 200, whatever was asked for."""

    def reply(handler: Handler) -> None:
        handler.head(200, **({"ETag": ETAG, "Content_Length": len(content)} | headers))
        handler.wfile.write(content)
        handler.close_connection = True

    return reply


def breaks_off(size: int = HALF, **headers: object) -> Reply:
    """Promise all, send the beginning, hang up."""
    return sends(CONTENT[:size], Content_Length=len(CONTENT), **headers)


def stalls(handler: Handler) -> None:
    """Promise all, send half, and nothing more until the test is over."""
    handler.head(200, ETag=ETAG, Content_Length=len(CONTENT))
    handler.wfile.write(CONTENT[:HALF])
    handler.wfile.flush()
    handler.server.may_go_on.wait(WAIT_SECONDS)
    handler.close_connection = True


def waits(handler: Handler) -> None:
    """Answer as soon as the test says so."""
    handler.server.may_go_on.wait(WAIT_SECONDS)
    whole(handler)


def status(code: int, **headers: object) -> Reply:
    return lambda handler: handler.head(code, Content_Length=0, **headers)


def redirects(location: str, **headers: object) -> Reply:
    return status(302, Location=location, **headers)


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.005,))
    thread.start()
    try:
        yield server
    finally:
        server.may_go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's own set-up."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("HF_"):
            monkeypatch.delenv(name)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture
def storage() -> Iterator[Server]:
    """Where the hub redirects to."""
    with serving() as server:
        yield server


class Pauses(list[float]):
    """Stands in for ``time.sleep``."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def get(file: HubFile, data_dir: Path) -> bytes:
    return fetch(file, data_dir, sleep=Pauses()).read_bytes()


def failure(file: HubFile, data_dir: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        fetch(file, data_dir, sleep=Pauses())
    return str(caught.value)


def cache_path(data_dir: Path) -> Path:
    return data_dir / "hub" / "org--set" / "main" / "data" / "test.parquet"


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def record_of(data_dir: Path) -> dict[str, object]:
    text = cache_path(data_dir).with_name("test.parquet.json").read_text("utf-8")
    return cast("dict[str, object]", json.loads(text))


def leave_part(data_dir: Path, content: bytes, etag: str) -> None:
    """Leave what a process leaves that died in the middle."""
    part = put(cache_path(data_dir).with_name("test.parquet.part"), content)
    part.with_name(f"{part.name}.json").write_text(json.dumps({"etag": etag}))


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- the cache ------------------------------------------------------------------------------------


def test_file_is_downloaded_once(hub: Server, tmp_path: Path) -> None:
    """The second call takes it from the cache."""
    paths = [fetch(FILE, tmp_path, sleep=Pauses()) for _ in range(2)]
    assert paths == [cache_path(tmp_path)] * 2
    assert paths[0].read_bytes() == CONTENT
    assert [path for path, _ in hub.requests] == [URL_PATH]


def test_record_says_where_the_file_came_from(hub: Server, tmp_path: Path) -> None:
    """All that is needed to tell what it is, in readable form; nothing else is left but the lock."""
    get(FILE, tmp_path)
    record = record_of(tmp_path)
    fetched_at = datetime.fromisoformat(str(record.pop("fetched_at")))
    assert record == {
        "url": hub.url + URL_PATH,
        "repo": "org/set",
        "revision": "main",
        "path": "data/test.parquet",
        "sha256": SHA256,
        "bytes": len(CONTENT),
    }
    assert abs(datetime.now(UTC) - fetched_at) < timedelta(minutes=1)
    left = {"test.parquet", "test.parquet.json", "test.parquet.lock"}
    assert names_in(cache_path(tmp_path).parent) == left


@pytest.mark.parametrize("file", [FILE, PINNED], ids=["recorded", "pinned"])
def test_damaged_file_is_downloaded_again(hub: Server, tmp_path: Path, file: HubFile) -> None:
    """A file that is not what it was is replaced without a word."""
    fetch(file, tmp_path).write_bytes(CONTENT[:-1] + b"x")
    assert get(file, tmp_path) == CONTENT
    assert len(hub.requests) == 2


def test_unreadable_record_proves_nothing(hub: Server, tmp_path: Path) -> None:
    """A file beside a record that is none is downloaded again."""
    path = fetch(FILE, tmp_path)
    path.with_name("test.parquet.json").write_text("{")
    assert get(FILE, tmp_path) == CONTENT
    assert len(hub.requests) == 2


def test_another_repository_with_the_same_place_is_not_mistaken(hub: Server, tmp_path: Path) -> None:
    """ "org/set" and "org--set" are cached in the same directory."""
    get(FILE, tmp_path)
    hub.replies.append(sends(b"other"))
    assert get(replace(FILE, repo="org--set"), tmp_path) == b"other"


def test_new_pin_replaces_the_file(hub: Server, tmp_path: Path) -> None:
    """A cached file that has not the hash that is pinned now is not used."""
    hub.replies.append(sends(b"older version"))
    get(FILE, tmp_path)
    assert get(PINNED, tmp_path) == CONTENT


@pytest.mark.parametrize("file", [FILE, PINNED, replace(FILE, sha256=SHA256.upper())])
@pytest.mark.usefixtures("hub")
def test_file_put_there_by_hand_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: HubFile
) -> None:
    """Without a record, it is taken if it has the pinned hash, or if none is pinned; also offline."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    put(cache_path(tmp_path), CONTENT)
    assert get(file, tmp_path) == CONTENT
    assert names_in(cache_path(tmp_path).parent) == {"test.parquet"}


def test_wrong_file_put_there_by_hand_is_replaced(hub: Server, tmp_path: Path) -> None:
    """The pinned hash decides."""
    put(cache_path(tmp_path), b"something else")
    assert get(PINNED, tmp_path) == CONTENT
    assert len(hub.requests) == 1


def test_record_is_no_file_put_there_by_hand(hub: Server, tmp_path: Path) -> None:
    """The record of "test.parquet" is where the file "test.parquet.json" of the hub would be."""
    get(FILE, tmp_path)
    hub.replies.append(sends(b"{}"))
    assert get(replace(FILE, path="data/test.parquet.json"), tmp_path) == b"{}"


@pytest.mark.parametrize("field", ["repo", "revision", "path"])
@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../x",
        "x/../y",
        "/etc/x",
        "x//y",
        "x/",
        "",
        ".",
        "x/./y",
        "..\\x",
        "C:\\x",
        "C:x",
        "x\0y",
        "... ",
        "x\ny",
    ],
)
def test_names_cannot_leave_the_cache(hub: Server, tmp_path: Path, field: str, name: str) -> None:
    """A name that means another directory on any system is refused before anything happens."""
    file = HubFile(**({"repo": "org/set", "revision": "main", "path": "x"} | {field: name}))
    assert "plain names" in failure(file, tmp_path)
    assert not hub.requests
    assert names_in(tmp_path) == set()


@pytest.mark.parametrize("name", ["x.part", "x.part.json", "x.lock"])
@pytest.mark.usefixtures("hub")
def test_names_of_the_cache_itself_are_refused(tmp_path: Path, name: str) -> None:
    """What the cache puts beside the file "x" cannot be a file of its own."""
    assert "for itself" in failure(replace(FILE, path=name), tmp_path)


def test_pin_that_is_no_hash_is_refused(tmp_path: Path) -> None:
    """A typo in the pin is found before anything is downloaded."""
    assert "no sha256" in failure(replace(FILE, sha256="abc"), tmp_path)


def test_odd_names_are_quoted(hub: Server, tmp_path: Path) -> None:
    """A branch may contain slashes, a file name anything."""
    path = fetch(HubFile(repo="set", revision="refs/pr/1", path="a b/100%/ü#?.txt"), tmp_path)
    assert path == tmp_path / "hub/set/refs--pr--1/a b/100%/ü#?.txt"
    (url, _), *_ = hub.requests
    assert url == "/datasets/set/resolve/refs%2Fpr%2F1/a%20b/100%25/%C3%BC%23%3F.txt"


# --- broken transfers -----------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [breaks_off(), stalls], ids=["hangs up", "falls silent"])
def test_broken_download_is_continued(hub: Server, tmp_path: Path, ending: Reply) -> None:
    """What has arrived is kept, and only the rest is asked for, of the same version."""
    hub.replies.append(ending)
    pauses = Pauses()
    started_at = time.monotonic()
    path = fetch(FILE, tmp_path, sleep=pauses, _idle_seconds=0.05)
    assert time.monotonic() - started_at < WAIT_SECONDS / 2
    assert path.read_bytes() == CONTENT
    assert hub.ranges == [None, f"bytes={HALF}-"]
    assert hub.requests[1][1]["if-range"] == ETAG
    assert len(pauses) == 1
    assert 0.5 <= pauses[0] <= 1


def test_part_of_an_earlier_process_is_continued(hub: Server, tmp_path: Path) -> None:
    """The part and its ETag outlive the process."""
    leave_part(tmp_path, CONTENT[:100], ETAG)
    assert get(FILE, tmp_path) == CONTENT
    assert hub.ranges == ["bytes=100-"]


def test_part_of_another_version_is_dropped(hub: Server, tmp_path: Path) -> None:
    """The server has a new ETag, so it sends all, and all is taken."""
    leave_part(tmp_path, b"old" * 100, '"version-0"')
    assert get(FILE, tmp_path) == CONTENT
    assert hub.ranges == ["bytes=300-"]


@pytest.mark.parametrize("etag", ["", 'W/"version-1"', "version-1", '"a"\r\nX: y'])
def test_part_without_a_strong_etag_is_dropped(hub: Server, tmp_path: Path, etag: str) -> None:
    """Nothing says that the rest would be of the same version."""
    leave_part(tmp_path, b"old" * 100, etag)
    assert get(FILE, tmp_path) == CONTENT
    assert hub.ranges == [None]


def test_part_whose_etag_is_unknown_is_dropped(hub: Server, tmp_path: Path) -> None:
    """A part alone may be of any version."""
    put(cache_path(tmp_path).with_name("test.parquet.part"), b"old" * 100)
    assert get(FILE, tmp_path) == CONTENT
    assert hub.ranges == [None]


def test_broken_download_without_etag_starts_anew(hub: Server, tmp_path: Path) -> None:
    """The ETag of an earlier part doesn't stay for a new one that has none."""
    leave_part(tmp_path, b"old" * 100, '"version-0"')
    hub.replies.append(breaks_off(ETag='W/"weak"'))
    assert get(FILE, tmp_path) == CONTENT
    assert hub.ranges == ["bytes=300-", None]


def test_server_without_ranges_sends_all_again(hub: Server, tmp_path: Path) -> None:
    """A 200 to a Range starts the part anew."""
    hub.replies.extend([breaks_off(), sends(CONTENT)])
    assert get(FILE, tmp_path) == CONTENT
    assert hub.ranges == [None, f"bytes={HALF}-"]


def wrong_span(handler: Handler) -> None:
    handler.head(206, ETag=ETAG, Content_Length=5, Content_Range=f"bytes 0-4/{len(CONTENT)}")
    handler.wfile.write(CONTENT[:5])


def rest_of_another_version(handler: Handler) -> None:
    """Ignore If-Range."""
    size = len(CONTENT)
    content_range = f"bytes 100-{size - 1}/{size}"
    handler.head(206, ETag='"version-2"', Content_Length=size - 100, Content_Range=content_range)
    handler.wfile.write(b"x" * (size - 100))


@pytest.mark.parametrize("reply", [status(416), status(206), wrong_span, rest_of_another_version])
def test_part_that_cannot_be_continued_is_dropped(hub: Server, tmp_path: Path, reply: Reply) -> None:
    """A refused or unfitting range means one request for all, at once."""
    leave_part(tmp_path, CONTENT[:100], ETAG)
    hub.replies.append(reply)
    pauses = Pauses()
    assert fetch(FILE, tmp_path, sleep=pauses).read_bytes() == CONTENT
    assert hub.ranges == ["bytes=100-", None]
    assert pauses == []


def test_short_range_is_continued(hub: Server, tmp_path: Path) -> None:
    """A server may send less than all that is left; Content-Range tells."""

    def a_bit(handler: Handler) -> None:
        handler.head(206, ETag=ETAG, Content_Length=50, Content_Range=f"bytes 100-149/{len(CONTENT)}")
        handler.wfile.write(CONTENT[100:150])

    leave_part(tmp_path, CONTENT[:100], ETAG)
    hub.replies.append(a_bit)
    assert get(FILE, tmp_path) == CONTENT
    assert hub.ranges == ["bytes=100-", "bytes=150-"]


def test_download_without_end_is_given_up(hub: Server, tmp_path: Path) -> None:
    """Progress doesn't earn more tries; what has arrived is kept for the next call."""
    hub.replies.append(breaks_off(10))
    for start in range(10, 60, 10):
        hub.replies.append(breaks_range(start, 10))
    assert "cannot get" in failure(FILE, tmp_path)
    assert get(FILE, tmp_path) == CONTENT
    assert hub.ranges == [None, *(f"bytes={start}-" for start in range(10, 70, 10))]


def breaks_range(start: int, size: int) -> Reply:
    def reply(handler: Handler) -> None:
        total = len(CONTENT)
        content_range = f"bytes {start}-{total - 1}/{total}"
        handler.head(206, ETag=ETAG, Content_Length=total - start, Content_Range=content_range)
        handler.wfile.write(CONTENT[start : start + size])
        handler.close_connection = True

    return reply


def chunked(handler: Handler, *, is_whole: bool = True) -> None:
    handler.head(200, ETag=ETAG, Transfer_Encoding="chunked")
    handler.wfile.write(b"%x\r\n%b\r\n" % (HALF, CONTENT[:HALF]))
    if is_whole:
        handler.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (HALF, CONTENT[HALF:]))
    handler.close_connection = True


def test_chunked_reply_is_whole_when_it_says_so(hub: Server, tmp_path: Path) -> None:
    """A reply in chunks has no length, but an end."""
    hub.replies.extend([lambda handler: chunked(handler, is_whole=False), chunked])
    assert get(FILE, tmp_path) == CONTENT
    assert len(hub.requests) == 2


def no_length(handler: Handler) -> None:
    handler.head(200, Connection="close")
    handler.wfile.write(CONTENT)
    handler.close_connection = True


def test_reply_without_length_or_hash_is_refused(hub: Server, tmp_path: Path) -> None:
    """It could be a part and nobody would know; a pinned hash settles it."""
    hub.replies.extend([no_length, no_length])
    assert "neither its length nor its hash" in failure(FILE, tmp_path)
    assert get(PINNED, tmp_path) == CONTENT


def test_encoded_reply_is_refused(hub: Server, tmp_path: Path) -> None:
    """Compressed bytes are not the file."""
    hub.replies.append(sends(b"x", Content_Encoding="gzip"))
    assert "'gzip'" in failure(FILE, tmp_path)
    assert hub.requests[0][1]["accept-encoding"] == "identity"


# --- tries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504, 529])
def test_passing_trouble_is_waited_out(hub: Server, tmp_path: Path, code: int) -> None:
    """Pauses grow, each somewhere in the upper half of its span."""
    hub.replies.extend([status(code)] * 5)
    pauses = Pauses()
    assert fetch(FILE, tmp_path, sleep=pauses).read_bytes() == CONTENT
    spans = [1, 2, 4, 8, 16]
    assert all(span / 2 <= pause <= span for pause, span in zip(pauses, spans, strict=True))


def test_lasting_trouble_is_given_up(hub: Server, tmp_path: Path) -> None:
    """After five more tries, the error says what to do."""
    hub.replies.extend([status(500)] * 100)
    message = failure(FILE, tmp_path)
    assert len(hub.requests) == 6
    assert "status 500" in message
    assert "`data_path`" in message


@pytest.mark.parametrize(
    ("value", "pause_seconds"),
    [("7", 7), ("0", 0), ("1.5", 1.5), ("61", 60), ("9" * 400, 60), ("Fri, 01 Jan 2100 00:00:00 GMT", 60)],
)
def test_server_says_how_long_to_wait(hub: Server, tmp_path: Path, value: str, pause_seconds: float) -> None:
    """Retry-After is honoured up to a minute."""
    hub.replies.append(status(429, Retry_After=value))
    pauses = Pauses()
    fetch(FILE, tmp_path, sleep=pauses)
    assert pauses == [pause_seconds]


def test_server_says_until_when_to_wait(hub: Server, tmp_path: Path) -> None:
    """Retry-After may be a date."""
    until = datetime.now(UTC) + timedelta(seconds=30)
    hub.replies.append(status(503, Retry_After=format_datetime(until, usegmt=True)))
    pauses = Pauses()
    fetch(FILE, tmp_path, sleep=pauses)
    assert 25 <= pauses[0] <= 30


@pytest.mark.parametrize(
    "value", ["-5", "soon", "", "inf", "nan", "1e3", "Sun, 06 Nov 1994 08:49:37 GMT", "Fri, 99 Foo"]
)
def test_senseless_wait_is_ignored(hub: Server, tmp_path: Path, value: str) -> None:
    """Our own pause is taken instead."""
    hub.replies.append(status(429, Retry_After=value))
    pauses = Pauses()
    fetch(FILE, tmp_path, sleep=pauses)
    assert 0.5 <= pauses[0] <= 1


@pytest.mark.parametrize("code", [401, 403])
def test_refused_access_names_the_token_and_the_terms(hub: Server, tmp_path: Path, code: int) -> None:
    """Waiting would not help, so it is said at once."""
    hub.replies.append(status(code))
    message = failure(FILE, tmp_path)
    assert "HF_TOKEN" in message
    assert f"accept the terms on {hub.url}/datasets/org/set" in message
    assert len(hub.requests) == 1


def test_missing_file_is_named(hub: Server, tmp_path: Path) -> None:
    """The three things that may be wrong are in the message."""
    hub.replies.append(status(404))
    message = failure(FILE, tmp_path)
    assert all(repr(name) in message for name in ("org/set", "main", "data/test.parquet"))


@pytest.mark.parametrize("code", [400, 410, 416, 451, 206, 204, 304])
def test_other_status_is_told(hub: Server, tmp_path: Path, code: int) -> None:
    """Whatever else is answered is no file."""
    hub.replies.append(status(code))
    assert f"status {code}" in failure(FILE, tmp_path)
    assert len(hub.requests) == 1


def test_endless_redirects_are_given_up(hub: Server, tmp_path: Path) -> None:
    """They count as broken tries."""
    hub.replies.extend([redirects("/again")] * 1000)
    assert "redirects" in failure(FILE, tmp_path)


# --- hashes ---------------------------------------------------------------------------------------


def test_wrong_hash_is_tried_once_more(hub: Server, tmp_path: Path) -> None:
    """The bad part is gone, so the second try is for all of it."""
    hub.replies.append(sends(b"damaged on the way"))
    assert get(PINNED, tmp_path) == CONTENT
    assert hub.ranges == [None, None]


def test_wrong_hash_twice_is_an_error(hub: Server, tmp_path: Path) -> None:
    """It names the file, both hashes and the way out, and keeps nothing."""
    message = failure(replace(FILE, sha256=OTHER_SHA256), tmp_path)
    assert len(hub.requests) == 2
    assert all(text in message for text in ("data/test.parquet", SHA256, OTHER_SHA256, "`data_path`"))
    assert names_in(cache_path(tmp_path).parent) == {"test.parquet.lock"}


def test_damaged_part_is_found_by_the_hash(hub: Server, tmp_path: Path) -> None:
    """A part with the right ETag and wrong bytes costs one more download."""
    leave_part(tmp_path, b"x" * 100, ETAG)
    assert get(PINNED, tmp_path) == CONTENT
    assert hub.ranges == ["bytes=100-", None]


def test_hash_of_the_hub_is_checked(hub: Server, storage: Server, tmp_path: Path) -> None:
    """The hub says what the storage must send."""
    hub.replies.extend([redirects(f"{storage.url}/blob", X_Linked_ETag=f'"{SHA256}"')] * 2)
    storage.replies.append(sends(b"damaged on the way"))
    assert get(FILE, tmp_path) == CONTENT
    assert len(storage.requests) == 2


def test_hash_of_a_renamed_repository_is_checked(hub: Server, storage: Server, tmp_path: Path) -> None:
    """The hub redirects to itself first."""
    linked = redirects(f"{storage.url}/blob", X_Linked_ETag=f'"{SHA256}"')
    hub.replies.extend([redirects("/renamed"), linked] * 2)
    storage.replies.append(sends(b"damaged on the way"))
    assert get(FILE, tmp_path) == CONTENT


def test_pinned_hash_beats_that_of_the_hub(hub: Server, tmp_path: Path) -> None:
    """Whoever pins a hash believes nobody else."""
    hub.replies.append(sends(CONTENT, X_Linked_ETag=f'"{OTHER_SHA256}"'))
    assert get(replace(FILE, sha256=SHA256.upper()), tmp_path) == CONTENT
    assert len(hub.requests) == 1


@pytest.mark.parametrize("value", ['"abc"', "", f'"{"z" * 64}"', f'"{"a" * 40}"'])
def test_etag_that_is_no_sha256_is_no_hash(hub: Server, tmp_path: Path, value: str) -> None:
    """Small files have a git hash there."""
    hub.replies.append(sends(CONTENT, X_Linked_ETag=value))
    assert get(FILE, tmp_path) == CONTENT


def test_hash_of_the_storage_is_not_believed(hub: Server, storage: Server, tmp_path: Path) -> None:
    """Only the hub knows what the file should be."""
    hub.replies.append(redirects(f"{storage.url}/blob"))
    storage.replies.append(sends(CONTENT, X_Linked_ETag=f'"{OTHER_SHA256}"'))
    assert get(FILE, tmp_path) == CONTENT
    assert len(hub.requests) == 1


# --- the endpoint and its secrets -----------------------------------------------------------------


def test_token_is_for_the_hub_only(
    hub: Server, storage: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host that the hub redirects to doesn't get it, also when a download is continued there."""
    monkeypatch.setenv("HF_TOKEN", f" {TOKEN}\n")
    hub.replies.extend([redirects(f"{storage.url}/blob")] * 2)
    storage.replies.append(breaks_off())
    assert get(FILE, tmp_path) == CONTENT
    assert [headers["authorization"] for _, headers in hub.requests] == [f"Bearer {TOKEN}"] * 2
    assert storage.ranges == [None, f"bytes={HALF}-"]
    assert not any("authorization" in headers for _, headers in storage.requests)


@pytest.mark.parametrize("code", [401, 404, 418, 500])
def test_token_is_in_no_message_and_no_file(
    hub: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Neither when it works nor when it breaks off and fails."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    get(replace(FILE, path="works"), tmp_path)
    hub.replies.extend([breaks_off(), *[status(code)] * 5])
    message = failure(FILE, tmp_path)
    written = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"works.json", "test.parquet.part", "test.parquet.part.json"} <= written.keys()
    assert TOKEN not in message
    assert not any(TOKEN.encode() in content for content in written.values())


@pytest.mark.parametrize("token", [f"{TOKEN}\r\nX: y", f"{TOKEN}é", f"{TOKEN} x"])
def test_token_that_is_none_is_refused_unseen(
    hub: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """It would break the header, and the error would show it."""
    monkeypatch.setenv("HF_TOKEN", token)
    message = failure(FILE, tmp_path)
    assert "HF_TOKEN" in message
    assert TOKEN not in message
    assert not hub.requests


def test_endpoint_may_have_a_prefix_and_a_password(
    hub: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror behind a gateway; the password is used, but not written down."""
    monkeypatch.setenv("HF_ENDPOINT", f"http://me:{TOKEN}@127.0.0.1:{hub.server_port}/mirror/hf/")
    get(FILE, tmp_path)
    (path, headers), *_ = hub.requests
    assert path == f"/mirror/hf{URL_PATH}"
    assert headers["authorization"] == "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()
    assert record_of(tmp_path)["url"] == f"{hub.url}/mirror/hf{URL_PATH}"


@pytest.mark.parametrize(
    "endpoint",
    [
        "ftp://me:pw@host",
        "file:///x",
        "host",
        "http://",
        "https://me:pw@[::1",
        "http://host?key=pw",
        "http://h:pw",
    ],
)
def test_bad_endpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Only http and https; secrets in it are not shown."""
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    message = failure(FILE, tmp_path)
    assert "HF_ENDPOINT" in message
    assert "pw" not in message


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "xn--"])
def test_impossible_host_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """A name that cannot even be looked up ends like one that isn't found."""
    monkeypatch.setenv("HF_ENDPOINT", f"http://{host}")
    assert "cannot get" in failure(FILE, tmp_path)


@pytest.mark.usefixtures("hub")
def test_bad_proxy_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the variables, not the password."""
    monkeypatch.setenv("ALL_PROXY", "gopher://me:pw@proxy")
    message = failure(FILE, tmp_path)
    assert "ALL_PROXY" in message
    assert "pw" not in message


# --- no network, no disk --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"])
@pytest.mark.parametrize("value", ["1", "true", "YES", "On"])
def test_offline_mode_asks_nobody(
    hub: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """The error has the URL, the place for the file, and the parameter; nothing is written."""
    monkeypatch.setenv(name, value)
    message = failure(FILE, tmp_path)
    assert all(text in message for text in (hub.url + URL_PATH, str(cache_path(tmp_path)), "`data_path`"))
    assert not hub.requests
    assert names_in(tmp_path) == set()


@pytest.mark.parametrize("value", ["", "0", "false", "no"])
def test_offline_mode_can_be_off(
    hub: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """The variables are read as the hub's own tools do."""
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    get(FILE, tmp_path)
    assert len(hub.requests) == 1


def test_cached_file_needs_no_network(hub: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is used offline, whatever the endpoint is now."""
    get(FILE, tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "nonsense")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert get(FILE, tmp_path) == CONTENT
    assert len(hub.requests) == 1


@pytest.mark.parametrize(("file", "reason"), [(FILE, "test.parquet.json"), (PINNED, SHA256)])
@pytest.mark.usefixtures("hub")
def test_offline_mode_says_why_the_file_there_will_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: HubFile, reason: str
) -> None:
    """Whoever has just put it there by hand must learn what is wrong with it."""
    fetch(FILE, tmp_path).write_bytes(b"damaged")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert reason in failure(file, tmp_path).partition("the file there")[2]


def test_unreachable_hub_names_the_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After all tries: the URL, the place for the file, and the parameter."""
    endpoint = f"http://127.0.0.1:{closed_port()}"
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    pauses = Pauses()
    with pytest.raises(ConfigError) as caught:
        fetch(FILE, tmp_path, sleep=pauses)
    ways_out = (endpoint + URL_PATH, str(cache_path(tmp_path)), "`data_path`")
    assert all(text in str(caught.value) for text in ways_out)
    assert len(pauses) == 5


@pytest.mark.parametrize("blocked", ["hub", "hub/org--set/main", "hub/org--set/main/data"])
@pytest.mark.usefixtures("hub")
def test_directory_that_cannot_be_made_is_named(tmp_path: Path, blocked: str) -> None:
    """A file is in the way."""
    put(tmp_path / blocked, b"")
    assert str(cache_path(tmp_path).parent) in failure(FILE, tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.usefixtures("hub")
def test_directory_without_permission_is_named(tmp_path: Path) -> None:
    """Nothing can be written there."""
    directory = cache_path(tmp_path).parent
    directory.mkdir(parents=True)
    directory.chmod(0o500)
    message = failure(FILE, tmp_path)
    directory.chmod(0o700)
    assert str(directory) in message
    assert "Permission denied" in message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.usefixtures("hub")
def test_full_disk_is_an_error(tmp_path: Path) -> None:
    """It names the directory."""
    directory = cache_path(tmp_path).parent
    directory.mkdir(parents=True)
    (directory / "test.parquet.part").symlink_to("/dev/full")
    message = failure(FILE, tmp_path)
    assert str(directory) in message
    assert "No space left" in message


# --- several processes ----------------------------------------------------------------------------

PROGRAM = """
import sys
from pathlib import Path
from agentcompass.benchmarks.hub import HubFile, fetch
print("ready", flush=True)
print(fetch(HubFile(repo="org/set", revision="main", path="data/test.parquet"), Path(sys.argv[1])))
"""


@contextmanager
def another_process(data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """Fetch the file in a process of its own; it is in the middle of that from here on."""
    command = [sys.executable, "-c", PROGRAM, str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_two_processes_download_once(hub: Server, tmp_path: Path) -> None:
    """The second waits for the first, and finds the file."""
    hub.replies.append(waits)
    with another_process(tmp_path) as first:
        assert hub.arrived.acquire(timeout=WAIT_SECONDS)
        with another_process(tmp_path) as second:
            hub.may_go_on.set()
            outputs = [process.communicate(timeout=WAIT_SECONDS)[0] for process in (first, second)]
    assert outputs == [f"{cache_path(tmp_path)}\n"] * 2
    assert len(hub.requests) == 1


@pytest.mark.slow
def test_killed_process_frees_the_lock_and_leaves_its_part(hub: Server, tmp_path: Path) -> None:
    """The next one needs no cleaning up, and goes on where it was."""
    hub.replies.append(stalls)
    part = cache_path(tmp_path).with_name("test.parquet.part")
    with another_process(tmp_path) as process:
        assert hub.arrived.acquire(timeout=WAIT_SECONDS)
        wait_until(lambda: part.exists() and part.stat().st_size > 0)
        process.kill()
    size = part.stat().st_size
    assert get(FILE, tmp_path) == CONTENT
    assert hub.ranges == [None, f"bytes={size}-"]


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_threads_download_once(hub: Server, tmp_path: Path) -> None:
    """The lock also holds inside one process."""
    hub.replies.append(waits)
    threads = [threading.Thread(target=fetch, args=(FILE, tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert hub.arrived.acquire(timeout=WAIT_SECONDS)
    hub.may_go_on.set()
    for thread in threads:
        thread.join()
    assert len(hub.requests) == 1


def test_file_that_came_while_waiting_is_used(hub: Server, tmp_path: Path) -> None:
    """Whoever gets the lock looks again before downloading."""
    path = cache_path(tmp_path)
    lock = put(path.with_name("test.parquet.lock"), b"").open("r+b")
    fcntl.flock(lock, fcntl.LOCK_EX)
    thread = threading.Thread(target=fetch, args=(FILE, tmp_path))
    thread.start()
    put(path, CONTENT)
    lock.close()
    thread.join()
    assert not hub.requests


# --- progress -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hub")
def test_nothing_is_printed_without_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Logs are not for bars."""
    get(FILE, tmp_path)
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.usefixtures("hub")
def test_terminal_gets_a_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, with the name of the file."""
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        get(FILE, tmp_path)
    shown = read_all(ours)
    assert "test.parquet" in shown
    assert "kB" in shown
    assert capsys.readouterr().out == ""


def read_all(descriptor: int) -> str:
    """Read what is there; a terminal whose other end is closed gives an error at the end, on Linux."""
    shown = io.BytesIO()
    try:
        while select.select([descriptor], [], [], 0.1)[0] and (data := os.read(descriptor, 65536)):
            shown.write(data)
    except OSError:
        pass
    os.close(descriptor)
    return shown.getvalue().decode()
