"""How containers are set up: hardened unless a parameter says otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from aiodocker import Docker
from anyio import to_thread

from agentcompass.environments.docker import DockerEnvironment, DockerParams
from agentcompass.errors import ConfigError, SessionLostError, SessionOpenError, TransferError
from agentcompass.protocols import Session
from agentcompass.spec.validation import validate

from .environments import RUN_ID, containers_of, docker_environment, plan

pytestmark = pytest.mark.anyio


async def _status(session: Session, field: str) -> str:
    """Return a field of ``/proc/self/status`` as a command sees it."""
    lines = (await session.exec(["cat", "/proc/self/status"])).stdout.splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:"))


async def test_defaults_are_hardened(busybox_image: str, docker_client: Docker) -> None:
    """No new privileges, an init process, limits, a network of its own, nothing mounted."""
    async with docker_environment(image=busybox_image) as environment, environment.open(plan()) as session:
        [name] = await containers_of(docker_client)
        config = (await docker_client.containers.container(name).show())["HostConfig"]
        assert await _status(session, "NoNewPrivs") == "1"
        assert (await session.exec("cat /proc/1/comm")).stdout == "docker-init\n"
    assert (config["Memory"], config["MemorySwap"]) == (8192 * 2**20, 8192 * 2**20)
    assert config["PidsLimit"] == 4096
    assert config["NetworkMode"] == "bridge"
    assert not config["Privileged"]
    assert not config["Binds"]
    assert not config.get("Mounts")


async def test_limits_hold(busybox_image: str) -> None:
    """A session has no more processes than it may have."""
    async with (
        docker_environment(image=busybox_image, pids=20) as environment,
        environment.open(plan()) as session,
    ):
        many = await session.exec("for i in $(seq 40); do sleep 30 & done; echo all")
        assert "all" not in many.stdout or "fork" in many.stderr


async def test_isolation_can_be_loosened_by_name(busybox_image: str) -> None:
    """Capabilities and new privileges are there for those who ask for them."""
    sys_ptrace = 1 << 19
    async with docker_environment(image=busybox_image) as strict, strict.open(plan()) as session:
        assert not int(await _status(session, "CapEff"), 16) & sys_ptrace
    async with (
        docker_environment(image=busybox_image, cap_add=["SYS_PTRACE"], new_privileges=True) as loose,
        loose.open(plan()) as session,
    ):
        assert await _status(session, "NoNewPrivs") == "0"
        assert int(await _status(session, "CapEff"), 16) & sys_ptrace


async def test_image_with_an_entrypoint_of_its_own(configured_image: str) -> None:
    """Entrypoint and command are replaced; working directory, environment and user of the image hold."""
    async with docker_environment(image=configured_image) as environment, environment.open(plan()) as session:
        assert session.workdir == "/srv/app"
        result = await session.exec('id -un; echo "$FROM_IMAGE"; pwd; touch mine; ls -l mine')
        assert result.stdout.splitlines()[:3] == ["agent", "from the image", "/srv/app"]
        assert " agent " in result.stdout.splitlines()[3]


async def test_unprivileged_user_owns_working_directory_and_files(busybox_image: str, tmp_path: Path) -> None:
    """What the engine writes and uploads belongs to the session's user."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("x")
    async with (
        docker_environment(image=busybox_image, user="agent") as environment,
        environment.open(plan()) as session,
    ):
        await session.write("written", b"x")
        await session.upload(tmp_path / "tree", "uploaded")
        owners = await session.exec("stat -c %U . written uploaded uploaded/file")
        assert owners.stdout.split() == ["agent"] * 4
        with pytest.raises(TransferError, match=r"[Pp]ermission"):
            await session.write("/etc/passwd", b"")


async def test_parameters_reach_the_container(busybox_image: str, tmp_path: Path) -> None:
    """Working directory, variables and read-only mounts."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "data").write_text("42")
    mount = {"source": str(tmp_path / "shared"), "target": "/data"}
    async with (
        docker_environment(
            image=busybox_image, working_dir="/a/b", env={"NAME": "value"}, mounts=[mount], cpus=0.5
        ) as environment,
        environment.open(plan()) as session,
    ):
        result = await session.exec('pwd; echo "$NAME"; cat /data/data; touch /data/new')
    assert result.stdout == "/a/b\nvalue\n42"
    assert "Read-only" in result.stderr


@pytest.mark.parametrize("label", ["org/name:tag agent", "../../etc/x", "x\ny", "-rf", "名前", "", "n" * 400])
async def test_any_label_makes_a_name(busybox_image: str, docker_client: Docker, label: str) -> None:
    """What Docker does not take in a name is left out; the label of the container has it all."""
    labelled = replace(plan(), label=label)
    async with docker_environment(image=busybox_image) as environment, environment.open(labelled):
        [name] = await containers_of(docker_client)
        labels = (await docker_client.containers.container(name).show())["Config"]["Labels"]
    assert labels["agentcompass.trial"] == label


async def test_same_task_twice_at_once(busybox_image: str) -> None:
    """Names never collide."""
    async with (
        docker_environment(image=busybox_image) as environment,
        environment.open(plan()) as first,
        environment.open(plan()) as second,
    ):
        await first.write("f", b"1")
        assert (await second.exec("ls")).stdout == ""


async def test_kept_container_stays_and_says_how_to_use_it(busybox_image: str, docker_client: Docker) -> None:
    """``keep`` leaves it running with a note for people; the next start does not remove it."""
    notes: list[str] = []
    async with docker_environment(image=busybox_image) as environment:
        async with environment.open(plan(f"{RUN_ID}-kept", keep=True, note=notes.append)):
            pass
        await environment.check([])
        [name] = await containers_of(docker_client, f"{RUN_ID}-kept")
        await docker_client.containers.container(name).delete(force=True)
    assert len(notes) == 1
    assert f"docker exec -it {name}" in notes[0]
    assert f"env close --run {RUN_ID}-kept" in notes[0]


# --- what cannot work -------------------------------------------------------------------------------


async def test_task_without_an_image_is_told_so() -> None:
    """The message names the parameter."""
    async with docker_environment() as environment:
        with pytest.raises(SessionOpenError, match=r"environment_params\.image") as caught:
            async with environment.open(plan()):
                pass
    assert not caught.value.retryable


async def test_image_without_a_shell(docker_client: Docker, empty_image: str) -> None:
    """The first command says what the image lacks, and nothing stays behind."""
    async with (
        docker_environment(image=empty_image) as environment,
        environment.open(plan(f"{RUN_ID}-no-shell")) as session,
    ):
        with pytest.raises(SessionLostError, match="/bin/sh"):
            await session.exec("true")
    assert await containers_of(docker_client, f"{RUN_ID}-no-shell") == []


@pytest.mark.parametrize("host", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:9"])
async def test_daemon_that_does_not_answer(host: str) -> None:
    """One error before the run, with the way out; the same kind when it happens later."""
    async with docker_environment(image="x", docker_host=host) as environment:
        with pytest.raises(ConfigError, match=r"cannot be used.*docker info"):
            await environment.check([])
        with pytest.raises(SessionOpenError, match="cannot be used"):
            async with environment.open(plan()):
                pass


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_other_event_loop(busybox_image: str) -> None:
    """aiodocker needs asyncio; from trio the error names the way out."""
    environment = await to_thread.run_sync(DockerEnvironment, DockerParams(image=busybox_image))
    with pytest.raises(ConfigError, match="needs the asyncio event loop"):
        await environment.check([])


async def test_quota_that_the_daemon_does_not_have(busybox_image: str) -> None:
    """Said before the run starts."""
    async with docker_environment(image=busybox_image, storage_mb=100) as environment:
        with pytest.raises(ConfigError, match="storage_mb"):
            await environment.check([])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"image": "x", "build": "."}, "build: image is set as well"),
        ({"build": "/nowhere"}, "there is no file '/nowhere/Dockerfile'"),
        ({"working_dir": "relative"}, "working_dir: must be an absolute path"),
        ({"mounts": [{"source": "relative", "target": "/x"}]}, "source: must be an absolute path"),
        ({"memory": 5}, "memory_mb"),
        ({"docker_host": "localhost"}, "docker_host"),
    ],
)
def test_wrong_parameters_are_named(params: dict[str, object], message: str) -> None:
    """Each says what is wrong with it."""
    with pytest.raises(ConfigError, match=message):
        DockerEnvironment(validate(DockerParams, params, what="environment_params"))
