"""Chat questions against a local mock endpoint: CPU per question, and throughput under latency."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx
from httpx_aiohttp import AiohttpTransport
from measure import cost_of, main, show

from agentcompass import run_evaluation


def engine(arguments: list[str]) -> None:
    """Ask N questions through the engine: benchmark jsonl, harness chat, exact match."""
    url, questions, concurrency = arguments[0], int(arguments[1]), int(arguments[2])
    lines = (
        json.dumps({"id": f"q{n}", "question": f"What is {n}?", "answer": "ok"}) for n in range(questions)
    )
    Path("questions.jsonl").write_text("\n".join(lines), "utf-8")
    result = run_evaluation(
        benchmark="jsonl",
        benchmark_params={"path": "questions.jsonl"},
        harness="chat",
        model="mock",
        model_base_url=url,
        task_concurrency=concurrency,
        progress="none",
    )
    assert result.metrics is not None
    assert result.metrics.score.value == 1.0


def bare(arguments: list[str]) -> None:
    """Send the same requests with httpx on aiohttp and write one JSON line each."""
    anyio.run(_bare, arguments[0], int(arguments[1]), int(arguments[2]))


async def _bare(url: str, questions: int, concurrency: int) -> None:
    from aiohttp import ClientSession, TCPConnector

    slots = anyio.CapacityLimiter(concurrency)
    session = ClientSession(connector=TCPConnector(limit=0))
    transport = AiohttpTransport(client=session)
    async with httpx.AsyncClient(transport=transport, base_url=url, timeout=60) as client:
        with open("answers.jsonl", "w") as answers:  # noqa: PTH123, ASYNC230

            async def ask(number: int) -> None:
                body = {"model": "mock", "messages": [{"role": "user", "content": f"What is {number}?"}]}
                reply = (await client.post("/chat/completions", json=body)).json()
                answers.write(json.dumps({"id": number, "answer": reply["choices"][0]["message"]}) + "\n")
                slots.release_on_behalf_of(number)

            async with anyio.create_task_group() as group:
                for number in range(questions):
                    await slots.acquire_on_behalf_of(number)
                    group.start_soon(ask, number)


@contextmanager
def endpoint(latency_seconds: float) -> Iterator[str]:
    """Run the mock endpoint in a process of its own."""
    command = [sys.executable, "-m", "agentcompass.llm.mock_server", "--port", "0", "--answer", "ok"]
    command += ["--latency-seconds", str(latency_seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def report(quick: bool) -> None:
    """Print CPU per question at several concurrencies, and the throughput under latency."""
    questions = 2_000 if quick else 5_000
    print(f"chat questions ({questions:,}; CPU of start-up taken off)")
    with endpoint(0.0) as url:
        start_engine = cost_of(__file__, "engine", url, 1, 1, repeat=2)
        start_bare = cost_of(__file__, "bare", url, 1, 1, repeat=2)
        for concurrency in (16, 128, 1_000):
            ours = cost_of(__file__, "engine", url, questions, concurrency, repeat=2)
            theirs = cost_of(__file__, "bare", url, questions, concurrency, repeat=2)
            mine = (ours.cpu_seconds - start_engine.cpu_seconds) / questions * 1e3
            bare_ms = (theirs.cpu_seconds - start_bare.cpu_seconds) / questions * 1e3
            show(
                f"concurrency {concurrency:,}",
                f"{mine:.2f} ms = {mine / bare_ms:.1f} x bare",
                target="at most 3 x bare",
                met=mine <= 3 * bare_ms,
            )
    with endpoint(0.2) as url:
        start_wall = cost_of(__file__, "engine", url, 1, 1).wall_seconds - 0.2
        ours = cost_of(__file__, "engine", url, questions, 128)
    ideal = questions * 0.2 / 128
    share = ideal / (ours.wall_seconds - start_wall)
    show(
        "throughput, 200 ms latency, concurrency 128",
        f"{share:.0%} of the ideal",
        target="at least 90%",
        met=share >= 0.9,
    )


if __name__ == "__main__":
    main({"engine": engine, "bare": bare}, report)
