"""What the engine tells environments, what they tell it, and that they are closed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from anyio import to_thread
from pydantic import SecretStr

from agentcompass.engine import registry
from agentcompass.engine.environment import close_environment
from agentcompass.engine.network import phase_networks
from agentcompass.engine.orchestration import plan_orchestration, resolve_all
from agentcompass.engine.result import RunResult
from agentcompass.environments.fake import FakeEnvironment, FakeParams, FakeSession
from agentcompass.errors import ConfigError
from agentcompass.llm.endpoint import Endpoint
from agentcompass.logs import current_log
from agentcompass.protocols import ExecResult, ImageBuild, Outcome, Trial
from agentcompass.records import NoteStep, RunRecord, RunStatus
from agentcompass.spec.network import PUBLIC, NetworkPolicy
from agentcompass.spec.options import NetworkParams
from agentcompass.store.run import read_detail

from . import judges
from .lab import RIGHT, Lab, answer_right, trials

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

NO_NETWORK = NetworkPolicy(mode="no-network")
ALLOWLIST: dict[str, Any] = {"mode": "allowlist", "hosts": ["pypi.org"]}
ANY_MODE = FakeParams(network_modes=["public", "no-network", "allowlist", "denylist"])


@pytest.fixture(autouse=True)
def judges_are_registered() -> Iterator[None]:
    before = {key: dict(value) for key, value in registry._registered.items()}
    for cls in (judges.InSession, judges.FreshSession, judges.Built):
        registry.benchmark(cls.__name__)(cls)
    yield
    registry._registered.clear()
    registry._registered.update(before)


async def leave_result(trial: Trial) -> Outcome:
    """Do what the verifier of ``InSession`` looks for."""
    await trial.session.write("result.txt", b"done")
    return RIGHT


# --- network policies -------------------------------------------------------------------------------


async def test_each_phase_has_its_policy(lab: Lab) -> None:
    """The agent's and the verifier's session are opened with their own, the baseline fills the gaps."""
    params = {"network_policy": "no-network", "run_network_policy": ALLOWLIST}
    result = await lab.run(
        benchmark="FreshSession", environment=ANY_MODE, needs_session=True, environment_params=params
    )
    assert result.status is RunStatus.COMPLETED
    plans = [(plan.label, plan.network) for plan in lab.environments[0].plans]
    assert plans == [
        ("one agent", NetworkPolicy(mode="allowlist", hosts=("pypi.org",))),
        ("one verifier", NO_NETWORK),
    ]


@pytest.mark.parametrize("name", ["network_policy", "run_network_policy", "verifier_network_policy"])
async def test_policy_that_cannot_be_enforced_ends_the_request_before_it_starts(lab: Lab, name: str) -> None:
    """Never ignored."""
    result = await lab.run(
        benchmark="FreshSession", needs_session=True, environment_params={name: "no-network"}
    )
    assert result.status is RunStatus.FAILED
    assert isinstance(result.error, ConfigError)
    assert lab.environments[0].plans == []


async def test_policy_of_a_phase_without_session_matters_to_nobody(lab: Lab) -> None:
    """An environment is only asked for what it will have to do."""
    params = {"verifier_network_policy": "no-network"}
    result = await lab.run(needs_session=True, environment_params=params)
    assert result.status is RunStatus.COMPLETED


async def test_one_session_cannot_have_two_policies(lab: Lab) -> None:
    """A verifier in the agent's session has the agent's policy."""
    with pytest.raises(
        ConfigError, match="verifier_network_policy: the verifier works in the agent's session"
    ):
        await lab.run(
            leave_result,
            benchmark="InSession",
            environment=ANY_MODE,
            needs_session=True,
            environment_params={"run_network_policy": "no-network"},
        )
    result = await lab.run(
        leave_result,
        benchmark="InSession",
        environment=ANY_MODE,
        needs_session=True,
        environment_params={"network_policy": "no-network"},
    )
    assert result.status is RunStatus.COMPLETED


async def test_policies_are_part_of_what_was_measured(lab: Lab) -> None:
    """run.json has them, and a run is not continued under others."""
    params = {"network_policy": ALLOWLIST}
    first = await lab.run(environment=ANY_MODE, needs_session=True, environment_params=params)
    assert first.paths is not None
    record = msgspec.json.decode(Path(first.paths.run_json).read_bytes(), type=RunRecord)  # noqa: ASYNC240
    assert record.environment.params == {"network_policy": ALLOWLIST}
    assert record.environment_facts == {"fake": "yes"}
    other = await lab.run(environment=ANY_MODE, needs_session=True, run_id=first.run_id)
    assert other.status is RunStatus.FAILED
    assert "environment.params.network_policy" in str(other.error)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"network_policy": "no-network"}, "this environment has no network access."),
        ({"run_network_policy": ALLOWLIST}, "can reach only these hosts: pypi.org."),
        ({"network_policy": {"mode": "denylist", "hosts": ["a.b"]}}, "cannot reach these hosts: a.b."),
        ({"network_policy": "no-network", "network_notice": False}, ""),
        ({}, ""),
    ],
)
async def test_agent_is_told_what_it_can_reach(lab: Lab, params: dict[str, Any], sentence: str) -> None:
    """At the end of its prompt, which the record has too; without changing the task."""
    prompts: list[str] = []

    async def agent(trial: Trial) -> Outcome:
        prompts.append(trial.task.prompt)
        return RIGHT

    result = await lab.run(agent, environment=ANY_MODE, needs_session=True, environment_params=params)
    [prompt] = set(prompts)
    assert prompt.startswith("Say ok.")
    assert sentence in prompt
    assert ("Note:" in prompt) is bool(sentence)
    assert await _prompt_on_disk(result) == prompt
    assert _task_hashes(result) == _task_hashes(await lab.run(needs_session=True))


def _task_hashes(result: RunResult) -> dict[str, str]:
    return {record.task_id: record.task_hash for record in trials(result)}


async def _prompt_on_disk(result: RunResult) -> str:
    assert result.paths is not None
    detail = await to_thread.run_sync(read_detail, Path(result.paths.run_dir), trials(result)[0])
    assert not isinstance(detail, str)
    return detail.prompt


@pytest.mark.parametrize(
    ("base_url", "host"),
    [
        ("https://api.example.org/v1", "api.example.org:443"),
        ("http://127.0.0.1:8000/v1", "127.0.0.1:8000"),
        ("http://[::1]/v1", "[::1]:80"),
    ],
)
def test_model_of_an_agent_in_the_session_is_always_allowed(base_url: str, host: str) -> None:
    """Under any restrictive policy; the notice tells only what the user wrote."""
    endpoint = Endpoint(model_id="m", protocol="openai-chat", base_url=base_url, api_key=SecretStr("k"))
    closed = phase_networks(NetworkParams(network_policy=NO_NETWORK), endpoint)
    assert closed.agent == NetworkPolicy(mode="allowlist", hosts=(host,))
    assert closed.verifier == NO_NETWORK
    assert "no network access" in closed.notice
    listed = phase_networks(NetworkParams(network_policy=ALLOWLIST), endpoint)  # type: ignore[arg-type]
    assert listed.agent.hosts == ("pypi.org", host)
    denied = NetworkPolicy(mode="denylist", hosts=("evil.test",))
    assert phase_networks(NetworkParams(network_policy=denied), endpoint).agent == denied.plus(host)
    assert phase_networks(NetworkParams(), endpoint).agent == PUBLIC


async def test_endpoint_is_open_to_an_agent_that_calls_it_from_its_session(lab: Lab) -> None:
    """And to no verifier."""
    await lab.run(
        benchmark="FreshSession",
        environment=ANY_MODE,
        needs_session=True,
        needs_model=True,
        model_in_session=True,
        model="m",
        model_base_url="http://127.0.0.1:9/v1",
        environment_params={"network_policy": "no-network"},
    )
    agent, verifier = lab.environments[0].plans
    assert agent.network == NetworkPolicy(mode="allowlist", hosts=("127.0.0.1:9",))
    assert verifier.network == NO_NETWORK


# --- images -----------------------------------------------------------------------------------------


async def test_sessions_are_told_how_to_build_their_image(lab: Lab, tmp_path: Path) -> None:
    """Those of the agent and those of the verifier."""
    context = tmp_path / "image"
    await anyio.Path(context).mkdir()
    await anyio.Path(context, "Dockerfile").write_bytes(b"FROM busybox")
    result = await lab.run(benchmark="Built", benchmark_params={"value": str(context)}, needs_session=True)
    assert result.status is RunStatus.COMPLETED
    builds = [plan.build for plan in lab.environments[0].plans]
    assert builds == [ImageBuild(context=context)] * 2


async def test_run_is_not_continued_with_another_image(lab: Lab, tmp_path: Path) -> None:
    """A changed Dockerfile is a changed task."""
    context = tmp_path / "image"
    await anyio.Path(context).mkdir()
    options: dict[str, Any] = {"benchmark": "Built", "benchmark_params": {"value": str(context)}}
    await anyio.Path(context, "Dockerfile").write_bytes(b"FROM busybox:1.36")
    first = await lab.run(needs_session=True, **options)
    await anyio.Path(context, "Dockerfile").write_bytes(b"FROM busybox:1.37")
    other = await lab.run(needs_session=True, run_id=first.run_id, **options)
    assert "the content of 'one' has changed since" in str(other.error)


async def test_image_that_cannot_be_built_is_a_mistake_in_the_input(lab: Lab, tmp_path: Path) -> None:
    """Said before anything starts, with the file that is missing."""
    result = await lab.run(benchmark="Built", benchmark_params={"value": str(tmp_path)}, needs_session=True)
    assert isinstance(result.error, ConfigError)
    assert f"task 'one': there is no Dockerfile '{tmp_path / 'Dockerfile'}'" in str(result.error)


# --- notes ------------------------------------------------------------------------------------------


async def test_notes_of_an_environment_are_part_of_the_record(lab: Lab) -> None:
    """In the order of events, of the agent's and of the verifier's session, up to a limit."""

    async def answer(session: FakeSession, command: str) -> ExecResult:
        for number in range(int(command)):
            session.plan.note(f"network: refused host{number}")
        return ExecResult(exit_code=0)

    async def agent(trial: Trial) -> Outcome:
        await trial.session.exec("300")
        return RIGHT

    result = await lab.run(agent, environment=FakeParams(on_exec=answer), needs_session=True)
    assert result.paths is not None
    detail = await to_thread.run_sync(read_detail, Path(result.paths.run_dir), trials(result)[0])
    assert not isinstance(detail, str)
    texts = [step.text for step in detail.steps if isinstance(step, NoteStep)]
    assert texts[0] == "network: refused host0"
    assert len(texts) == 200
    assert texts[-1] == "further notes of the environment are left out"
    log = await to_thread.run_sync(Path(result.paths.log).read_text)
    assert "network: refused host0" in log


# --- the end ----------------------------------------------------------------------------------------


async def test_environment_is_closed_once_when_its_request_is_over(lab: Lab) -> None:
    """However that ends: well, refused, or stopped."""
    await lab.run(needs_session=True, resumable=False)
    await lab.run(needs_session=True, environment_params={"network_policy": "no-network"})

    async def stop(trial: Trial) -> Outcome:
        assert lab.stop is not None
        lab.stop.request()
        await anyio.sleep_forever()
        return RIGHT

    await lab.run(stop, needs_session=True)
    assert [environment.closes for environment in lab.environments] == [1, 1, 1]


async def test_environment_is_closed_when_the_host_is_cancelled(lab: Lab) -> None:
    """Also under a cancellation from outside."""
    with anyio.CancelScope() as scope:

        async def cancel(trial: Trial) -> Outcome:
            scope.cancel()
            await anyio.sleep_forever()
            return RIGHT

        await lab.run_unchecked(cancel, needs_session=True)
    assert scope.cancelled_caught
    assert [environment.closes for environment in lab.environments] == [1]


async def test_dry_run_closes_the_environment_as_well(lab: Lab) -> None:
    """It has been checked, so it may hold something."""
    spec = lab._spec({})
    with lab.registered(answer_right, FakeParams(), needs_session=True):
        requests = await to_thread.run_sync(resolve_all, spec)
        await plan_orchestration(requests)
    assert [environment.closes for environment in lab.environments] == [1]


class StubbornEnvironment(FakeEnvironment):
    """Has something to say before there is a run directory, and cannot be closed."""

    def __init__(self) -> None:
        super().__init__(FakeParams())
        self.facts = {"api": 1.41}  # type: ignore[dict-item]

    async def check(self, networks: Sequence[NetworkPolicy]) -> None:
        current_log().warning("commands_run_unconfined")

    async def aclose(self) -> None:
        raise RuntimeError("the network is in use")


async def test_what_an_environment_says_before_and_after_the_run_is_kept(lab: Lab) -> None:
    """Its facts as text, and that it cannot be closed, which is no error: the results exist already."""
    with lab.registered(answer_right, FakeParams(), needs_session=True):
        registry.environment("stubborn")(StubbornEnvironment)
        [result] = (await lab.orchestrate(lab._spec({"environment": "stubborn"}))).requests
    assert result.status is RunStatus.COMPLETED
    assert result.paths is not None
    lines = (await to_thread.run_sync(Path(result.paths.log).read_bytes)).splitlines()
    events = [msgspec.json.decode(line) for line in lines]
    assert [event["event"] for event in events] == [
        "commands_run_unconfined",
        "run_started",
        "run_finished",
        "environment_close_failed",
    ]
    assert events[-1]["error"] == "the network is in use"
    assert {event["request"] for event in events} == {"run"}
    run_json = await to_thread.run_sync(Path(result.paths.run_json).read_bytes)
    assert msgspec.json.decode(run_json, type=RunRecord).environment_facts == {"api": "1.41"}


async def test_environment_that_hangs_on_closing_holds_nobody_up() -> None:
    """Closing goes on under a cancellation, but not for ever."""
    begun: list[str] = []

    class Hanging(FakeEnvironment):
        async def aclose(self) -> None:
            await anyio.lowlevel.checkpoint()
            begun.append("closing")
            await anyio.sleep_forever()

    with anyio.fail_after(5), anyio.CancelScope() as scope:
        scope.cancel()
        await close_environment(Hanging(FakeParams()), within_seconds=0.01)
    assert begun == ["closing"]
