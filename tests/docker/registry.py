"""A registry with one image, on this machine; it counts, and it fails on request."""

from __future__ import annotations

import gzip
import hashlib
import json
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass
class Registry:
    """
    A registry by its image.

    Args:
        image: What to pull.
        requests: How often each kind of thing was asked for: ``manifest`` or ``blob``.
        failures: Status codes for the next requests of a manifest, used up one by one.
        may_answer: Blobs wait for this event.
    """

    image: str
    requests: Counter[str] = field(default_factory=Counter)
    failures: list[int] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(archive: bytes) -> Iterator[Registry]:
    """Serve a root file system as an image of a fresh name."""
    layer = gzip.compress(archive, 1)
    rootfs = {"type": "layers", "diff_ids": [_digest(archive)]}
    unique = {"Labels": {"unique": secrets.token_hex(8)}}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": unique, "rootfs": rootfs}).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _described(_CONFIG, config),
            "layers": [_described(_LAYER, layer)],
        }
    ).encode()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    name = f"test/{secrets.token_hex(6)}"
    server.registry = Registry(f"127.0.0.1:{server.server_port}/{name}:1")  # type: ignore[attr-defined]
    server.registry.may_answer.set()  # type: ignore[attr-defined]
    server.content = {_digest(data): data for data in (config, layer)} | {"manifest": manifest}  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.registry  # type: ignore[attr-defined]
    finally:
        server.registry.may_answer.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()
        server.server_close()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _described(media_type: str, data: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "size": len(data), "digest": _digest(data)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer as the distribution protocol says, version 2."""
        registry: Registry = self.server.registry  # type: ignore[attr-defined]
        content: dict[str, bytes] = self.server.content  # type: ignore[attr-defined]
        if self.path == "/v2/":
            self._send(200, b"{}", "application/json")
        elif "/manifests/" in self.path:
            registry.requests["manifest"] += 1
            if registry.failures:
                status = registry.failures.pop(0)
                code = {401: "UNAUTHORIZED", 404: "MANIFEST_UNKNOWN", 429: "TOOMANYREQUESTS"}.get(
                    status, "UNKNOWN"
                )
                self._send(status, b'{"errors": [{"code": "%s"}]}' % code.encode(), "application/json")
            else:
                self._send(200, content["manifest"], _MANIFEST)
        else:
            registry.requests["blob"] += 1
            registry.may_answer.wait(20)
            data = content.get(self.path.rpartition("/")[2])
            self._send(200 if data else 404, data or b"", "application/octet-stream")

    do_HEAD = do_GET  # noqa: N815  # of the base class

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", _digest(body))
        self.end_headers()
        if self.command == "GET":
            try:
                self.wfile.write(body)
            except ConnectionError:
                self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # of the base class
        """Say nothing."""
