"""The harness: its parameters, the agent's thread, and what the agent hands in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveFloat

from ..._version import InstalledVersion
from ...protocols import Outcome, Trial
from .bridge import Bridge, EngineModel, SessionEnvironment, finished_outcome
from .in_session import run_in_session
from .package import AgentSettings, load_settings, new_agent

_UNAME = "uname -s && uname -n && uname -r && uname -v && uname -m"
_UNAME_FIELDS = ("system", "node", "release", "version", "machine")
_UNAME_SECONDS = 30.0


class MiniSweAgentParams(BaseModel):
    """Limits and configuration of the agent; what is None is as the configuration has it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    config: Path | None = None
    """A YAML file in the format of mini-swe-agent, laid over its packaged ``swebench.yaml``."""
    step_limit: NonNegativeInt | None = None
    """How many model calls the agent may make; 0 for no limit. The packaged configuration says 250."""
    cost_limit: NonNegativeFloat | None = None
    """
    USD after which the agent stops; 0 for no limit. Needs ``model_prices``; without prices there is no limit,
    with them the packaged configuration says 3.
    """
    command_timeout: PositiveFloat | None = None
    """Seconds that one command may take. The packaged configuration says 60."""
    run_in: Literal["host", "session"] = "host"
    """Where the loop runs: on this machine, or in the session, whose image needs no network for it."""
    python: str = "python3"
    """The Python that runs the loop in the session; if it does not fit, this machine's is brought."""


class MiniSweAgent:
    """Runs the agent of the package ``mini-swe-agent``, one thread per attempt."""

    version = InstalledVersion("mini-swe-agent")
    extra: ClassVar[str] = "mini-swe-agent"
    needs_session: ClassVar[bool] = True
    needs_model: ClassVar[bool] = True
    sees_reference: ClassVar[bool] = False

    def __init__(self, params: MiniSweAgentParams) -> None:
        self._params = params
        limits = {"step_limit": params.step_limit, "cost_limit": params.cost_limit}
        own = {name: limit for name, limit in limits.items() if limit is not None}
        self._settings: AgentSettings = load_settings(params.config, agent=own)
        self._command_seconds = params.command_timeout or float(self._settings.environment.get("timeout", 60))
        self.max_model_calls = self._settings.agent.get("step_limit") or None
        self.needs_prices = self._settings.own_cost_limit > 0

    async def run(self, trial: Trial) -> Outcome:
        """
        Let the agent work until it submits or reaches a limit.

        Raises:
            SessionError: Its loop cannot run in the session.
            HarnessError: It broke there.
        """
        workdir = trial.session.workdir
        settings = self._settings.at(workdir)
        uname = await _uname(trial)
        if self._params.run_in == "session":
            return await run_in_session(
                trial,
                settings,
                timeout_seconds=self._command_seconds,
                python=self._params.python,
                uname=uname,
            )
        bridge = Bridge(trial)
        environment = SessionEnvironment(
            bridge, workdir=workdir, settings=settings, timeout_seconds=self._command_seconds, uname=uname
        )
        model = EngineModel(bridge, settings)
        task = trial.task.question or trial.task.prompt
        return await bridge.run(_work, task, model, environment, settings.agent)


async def _uname(trial: Trial) -> Mapping[str, str]:
    """Ask what the packaged templates may want to know of the machine."""
    result = await trial.session.exec(_UNAME, timeout_seconds=_UNAME_SECONDS)
    lines = result.stdout.splitlines()
    return dict(zip(_UNAME_FIELDS, [*lines, "", "", "", "", ""], strict=False))


def _work(
    task: str, model: EngineModel, environment: SessionEnvironment, settings: Mapping[str, Any]
) -> Outcome:
    """Run the agent's loop to its end; in a thread."""
    agent = new_agent(model, environment, settings)
    ending: Mapping[str, Any] = agent.run(task)
    return finished_outcome(str(ending.get("exit_status", "")), environment.submission, agent.serialize())
