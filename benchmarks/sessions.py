"""What a session costs: containers against a bare aiodocker script and ``docker cp``, and confinement."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import aiodocker
import anyio
from measure import show

from agentcompass.environments.docker import DockerEnvironment, DockerParams
from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.errors import ConfigError
from agentcompass.protocols import Environment, SessionPlan

IMAGE = "agentcompass-benchmark:busybox"
PLAN = SessionPlan(run_id="benchmark", label="session")
AT_ONCE = 24
Trial = Callable[[], Coroutine[Any, Any, None]]


# --- both sides -------------------------------------------------------------------------------------


def bare(docker: aiodocker.Docker) -> Trial:
    """Return the shortest script that does the same: create, start, exec, remove."""
    config: dict[str, Any] = {
        "Image": IMAGE,
        "Entrypoint": ["/bin/sh", "-c", "while sleep 3600; do :; done"],
        "HostConfig": {"Init": True},
    }

    async def trial() -> None:
        container = await docker.containers.create(config)
        await container.start()
        command = await container.exec(["true"])
        async with command.start() as stream:
            while await stream.read_out():
                pass
        assert (await command.inspect())["ExitCode"] == 0
        await container.delete(force=True, v=True)

    return trial


def ours(environment: Environment) -> Trial:
    """Return a trial of an environment."""

    async def trial() -> None:
        async with environment.open(PLAN) as session:
            assert (await session.exec(["true"])).exit_code == 0

    return trial


async def seconds_each(trial: Trial, repeat: int) -> float:
    """Return the median time of a trial, one after another."""
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        await trial()
        times.append(time.perf_counter() - began)
    return median(times)


async def seconds_at_once(trial: Trial) -> float:
    """Return the time of many trials at once."""
    began = time.perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(AT_ONCE):
            group.start_soon(trial)
    return time.perf_counter() - began


@asynccontextmanager
async def worst_lag() -> AsyncIterator[list[float]]:
    """Collect the delays of the event loop while the block runs."""
    delays = [0.0]

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await anyio.sleep(0.005)
            delays.append(time.perf_counter() - began - 0.005)

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        yield delays
        group.cancel_scope.cancel()


# --- reports ----------------------------------------------------------------------------------------


async def report_docker(repeat: int) -> None:
    """Compare time and rate of trivial trials."""
    environment = DockerEnvironment(DockerParams(image=IMAGE))
    await environment.check([])
    async with aiodocker.Docker() as docker:
        base, mine = bare(docker), ours(environment)
        await base()
        each = await seconds_each(base, repeat), await seconds_each(mine, repeat)
        async with worst_lag() as bare_delays:
            seconds = await seconds_at_once(base)
        async with worst_lag() as delays:
            at_once = seconds, await seconds_at_once(mine)
    ratio, rate = each[1] / each[0], at_once[0] / at_once[1]
    show(
        "open, true, close",
        f"{each[1] * 1000:.0f} ms = {ratio:.2f} x bare",
        target="1.25 x",
        met=ratio <= 1.25,
    )
    show(
        f"{AT_ONCE} at once",
        f"{AT_ONCE / at_once[1]:.1f}/s = {rate:.2f} x bare",
        target="0.9 x",
        met=rate >= 0.9,
    )
    lag = max(delays) * 1000
    bare_lag = max(bare_delays) * 1000  # the daemon takes the processors from either
    show("worst loop lag meanwhile", f"{lag:.0f} ms, bare {bare_lag:.0f} ms", target="50 ms", met=lag <= 50)
    await report_transfers(environment)
    await environment.aclose()


async def report_transfers(environment: DockerEnvironment) -> None:
    """Compare transfers with ``docker cp`` where there is a docker command."""
    if shutil.which("docker") is None:
        show("transfers", "no docker command to compare with")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "large").write_bytes(os.urandom(50_000_000))
        (folder / "many").mkdir()
        for number in range(2000):
            (folder / "many" / str(number)).write_bytes(os.urandom(500))
        async with environment.open(SessionPlan(run_id="benchmark", label="transfers")) as session:
            container = _only_container()
            await session.exec("mkdir /theirs")
            for what in ("large", "many"):
                up, down = [], []
                for number in range(5):
                    theirs = f"{container}:/theirs/{what}{number}"
                    up.append(
                        (
                            await _seconds(session.upload(folder / what, f"/ours/{what}{number}")),
                            _copy_seconds(str(folder / what), theirs),
                        )
                    )
                    down.append(
                        (
                            await _seconds(
                                session.download(f"/ours/{what}{number}", folder / f"a{what}{number}")
                            ),
                            _copy_seconds(theirs, str(folder / f"b{what}{number}")),
                        )
                    )
                for direction, pairs in (("up", up), ("down", down)):
                    mine, base = (median(side) for side in zip(*pairs, strict=True))
                    label = {"large": "50 MB", "many": "2,000 files"}[what]
                    value = f"{mine * 1000:.0f} ms = {mine / base:.2f} x docker cp"
                    show(f"{label} {direction}", value, target="1.3 x", met=mine <= 1.3 * base)


async def _seconds(work: Awaitable[None]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def _copy_seconds(source: str, target: str) -> float:
    began = time.perf_counter()
    subprocess.run(["docker", "cp", source, target], check=True, capture_output=True)
    return time.perf_counter() - began


def _only_container() -> str:
    command = ["docker", "ps", "--quiet", "--filter", "label=agentcompass.trial=transfers"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


async def report_local(repeat: int) -> None:
    """Say what confinement adds to a local session."""
    plain = LocalEnvironment(LocalParams(isolation="none"))
    confined = LocalEnvironment(LocalParams(isolation="bubblewrap"))
    try:
        await confined.check([])
    except ConfigError as error:
        show("confined local session", f"not measured: {error}")
        return
    each = await seconds_each(ours(plain), repeat), await seconds_each(ours(confined), repeat)
    added = (each[1] - each[0]) * 1000
    show("local: open, true, close", f"{each[0] * 1000:.0f} ms unconfined")
    show("bubblewrap adds", f"{added:.1f} ms", target="30 ms", met=added <= 30)


def make_image() -> str:
    """Import an image with busybox only; return why that is not possible, or nothing."""
    busybox = shutil.which("busybox")
    if busybox is None or shutil.which("docker") is None:
        return "needs a static busybox and the docker command"
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "bin").mkdir()
        shutil.copy(busybox, Path(name, "bin", "busybox"))
        for applet in ("sh", "true", "sleep", "head", "cat", "mkdir"):
            Path(name, "bin", applet).symlink_to("busybox")
        command = f"tar -C {json.dumps(name)} -c . | docker import - {IMAGE}"
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


if __name__ == "__main__":
    print("sessions")
    repeat = 10
    asyncio.run(report_local(3 * repeat))
    if reason := make_image():
        show("docker", f"not measured: {reason}")
    else:
        asyncio.run(report_docker(repeat))
