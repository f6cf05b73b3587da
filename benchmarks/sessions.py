"""What a session costs: containers against a bare aiodocker script and ``docker cp``, and confinement."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import aiodocker
import anyio
from measure import main, show

from agentcompass.environments.docker import DockerEnvironment, DockerParams
from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.errors import ConfigError
from agentcompass.protocols import Environment, Session, SessionPlan

IMAGE = "agentcompass-benchmark:busybox"
PLAN = SessionPlan(run_id="benchmark", label="session")
AT_ONCE = 24
SOURCES = {"large": "50 MB", "many": "2,000 files"}
Trial = Callable[[], Coroutine[Any, Any, None]]
Pair = tuple[float, float]
"""Our time and theirs, in seconds."""


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


async def seconds_of(work: Awaitable[None]) -> float:
    """Return how long something takes."""
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def at_once(trial: Trial) -> None:
    """Run many trials at once."""
    async with anyio.create_task_group() as group:
        for _ in range(AT_ONCE):
            group.start_soon(trial)


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


async def report_docker(quick: bool) -> None:
    """Compare time and rate of trivial trials; say so where no daemon answers."""
    environment = DockerEnvironment(DockerParams(image=IMAGE))
    try:
        await environment.check([])
        async with aiodocker.Docker() as docker:
            await import_image(docker)
            await report_one_by_one(bare(docker), ours(environment), 3 if quick else 20)
            await report_at_once(bare(docker), ours(environment), 1 if quick else 5)
        await report_transfers(environment, 1 if quick else 5)
    except ConfigError as error:
        show("containers", f"not measured: {error}")
    finally:
        await environment.aclose()


async def report_one_by_one(base: Trial, mine: Trial, repeat: int) -> None:
    """Compare the median time of a trial, the two sides in turn."""
    await base()
    await mine()
    rounds = [(await seconds_of(base()), await seconds_of(mine())) for _ in range(repeat)]
    theirs, own = (median(side) for side in zip(*rounds, strict=True))
    value = f"{own * 1000:.0f} ms = {own / theirs:.2f} x bare"
    show("open, true, close", value, target="1.25 x", met=own <= 1.25 * theirs)


async def report_at_once(base: Trial, mine: Trial, repeat: int) -> None:
    """Compare the median rate of many trials at once, the two sides in turn, and the loop's lag."""
    rounds = []
    lags: tuple[list[float], list[float]] = [], []
    for _ in range(repeat):
        seconds = []
        for trial, worst in zip((base, mine), lags, strict=True):
            async with worst_lag() as delays:
                seconds.append(await seconds_of(at_once(trial)))
            worst.append(max(delays) * 1000)
        rounds.append(seconds)
    theirs, own = (median(side) for side in zip(*rounds, strict=True))
    value = f"{AT_ONCE / own:.1f}/s = {theirs / own:.2f} x bare"
    show(f"{AT_ONCE} at once", value, target="0.9 x", met=theirs / own >= 0.9)
    lag = max(lags[1])
    # The daemon takes the processors from either side, and so may anything else on this machine.
    value = f"{lag:.0f} ms, bare {max(lags[0]):.0f} ms"
    show("worst loop lag meanwhile", value, target="50 ms", met=lag <= 50)


async def report_transfers(environment: DockerEnvironment, repeat: int) -> None:
    """Compare transfers with ``docker cp`` where there is a docker command."""
    if shutil.which("docker") is None:
        show("transfers", "no docker command to compare with")
        return
    plan = SessionPlan(run_id="benchmark", label=f"transfers of {os.getpid()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sources(folder)
        async with environment.open(plan) as session:
            container = container_of(plan)
            await session.exec("mkdir /theirs")
            for what, label in SOURCES.items():
                times = [await transfer(session, container, folder, what, n) for n in range(repeat)]
                ups, downs = zip(*times, strict=True)
                show_transfer(f"{label} up", ups)
                show_transfer(f"{label} down", downs)


def write_sources(folder: Path) -> None:
    """Write what is transferred."""
    (folder / "large").write_bytes(os.urandom(50_000_000))
    (folder / "many").mkdir()
    for number in range(2000):
        (folder / "many" / str(number)).write_bytes(os.urandom(500))


async def transfer(
    session: Session, container: str, folder: Path, what: str, number: int
) -> tuple[Pair, Pair]:
    """Return how long our and their way take up, and how long down again."""
    source, target = folder / what, f"{what}{number}"
    theirs = f"{container}:/theirs/{target}"
    up = (
        await seconds_of(session.upload(source, f"/ours/{target}")),
        copy_seconds(str(source), theirs),
    )
    down = (
        await seconds_of(session.download(f"/ours/{target}", folder / f"ours-{target}")),
        copy_seconds(theirs, str(folder / f"theirs-{target}")),
    )
    return up, down


def copy_seconds(source: str, target: str) -> float:
    """Return how long ``docker cp`` takes; blocks, nothing else is under way."""
    began = time.perf_counter()
    subprocess.run(["docker", "cp", source, target], check=True, capture_output=True)
    return time.perf_counter() - began


def show_transfer(label: str, times: Sequence[Pair]) -> None:
    """Print the medians of both ways."""
    own, theirs = (median(side) for side in zip(*times, strict=True))
    value = f"{own * 1000:.0f} ms = {own / theirs:.2f} x docker cp"
    show(label, value, target="1.3 x", met=own <= 1.3 * theirs)


def container_of(plan: SessionPlan) -> str:
    """Return the id of a session's container."""
    command = ["docker", "ps", "--quiet", "--filter", f"label=agentcompass.trial={plan.label}"]
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
    trials = ours(plain), ours(confined)
    rounds = [[await seconds_of(trial()) for trial in trials] for _ in range(repeat)]
    each = [median(side) for side in zip(*rounds, strict=True)]
    added = (each[1] - each[0]) * 1000
    show("local: open, true, close", f"{each[0] * 1000:.0f} ms unconfined")
    show("bubblewrap adds", f"{added:.1f} ms", target="30 ms", met=added <= 30)


def archive() -> bytes:
    """Return a root file system with busybox only, as a tar archive."""
    program = shutil.which("busybox")
    if program is None:
        raise ConfigError("a static busybox is needed (apt-get install busybox-static)")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", dereference=True) as tar:
        tar.add(program, "bin/busybox")
        for applet in ("sh", "true", "sleep", "head", "cat", "mkdir"):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return stream.getvalue()


async def import_image(docker: aiodocker.Docker) -> None:
    """Make the image that both sides run, unless it is there."""
    try:
        await docker.images.inspect(IMAGE)
    except aiodocker.DockerError:
        repository, _, tag = IMAGE.partition(":")
        params = {"fromSrc": "-", "repo": repository, "tag": tag}
        url = f"{docker.docker_host}/{docker.api_version}/images/create"
        async with docker.session.post(url, params=params, data=archive()) as response:
            await response.read()
            response.raise_for_status()


def report(quick: bool) -> None:
    """Print what sessions cost."""
    print("sessions (wall, medians)")
    asyncio.run(report_local(5 if quick else 30))
    asyncio.run(report_docker(quick))


if __name__ == "__main__":
    main({}, report)
