"""An OpenAI-compatible endpoint that leads the agent through each project, and counts what it is asked."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[[str, int], Sequence[str]]
"""The commands of a turn, by the problem and the number of turns before."""
KEY = "sk-CANARY-OF-THE-KEY"


class Endpoint:
    """Where it is, and how often each turn of each problem was asked for."""

    def __init__(self, script: Script) -> None:
        self.turns: Counter[tuple[str, int]] = Counter()
        self.requests: list[Mapping[str, Any]] = []
        self.hold: Callable[[str, int], None] = lambda problem, turn: None
        self._script = script
        self._lock = threading.Lock()
        self.base_url = ""

    def reply(self, body: Mapping[str, Any]) -> dict[str, Any]:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        problem = str(body["messages"][1]["content"])
        with self._lock:
            self.turns[problem, turn] += 1
            self.requests.append(body)
        self.hold(problem, turn)
        calls = [
            {
                "id": f"c{turn}-{number}",
                "type": "function",
                "function": {"name": "bash", "arguments": arguments},
            }
            for number, arguments in enumerate(
                json.dumps({"command": command}) for command in self._script(problem, turn)
            )
        ]
        message = {"role": "assistant", "content": f"turn {turn}", "tool_calls": calls}
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
        return {
            "id": "x",
            "object": "chat.completion",
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": usage,
        }


@contextmanager
def serving(script: Script) -> Iterator[Endpoint]:
    """Serve while the block runs."""
    endpoint = Endpoint(script)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            authorized = self.headers["Authorization"] == f"Bearer {KEY}"
            data = json.dumps(endpoint.reply(body) if authorized else {"error": {"message": "no"}}).encode()
            self.send_response(200 if authorized else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            with suppress(BrokenPipeError, ConnectionResetError):  # whoever asked may have been killed
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
