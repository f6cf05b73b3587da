"""``agentcompass ctl``: look into a running launch and steer it, through the socket in a run directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import ConfigError
from ..progress.phrases import duration
from .table import Table, print_tables
from .terminal import print_json, print_text

if TYPE_CHECKING:
    from ..engine.control_socket import Command

_ARGUMENT = {
    "status": "",
    "pause": "",
    "resume": "",
    "set": "NAME=N",
    "cancel": "TASK",
    "cancel-request": "NAME",
}
_SHOWN = 40


@click.command("ctl")
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.argument("action", type=click.Choice(list(_ARGUMENT)))
@click.argument("argument", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as one JSON document.")
def command(run_dir: Path, action: str, argument: str | None, as_json: bool) -> None:
    r"""
    Look into the launch that runs in RUN_DIR, and steer it.

    \b
    status                          who does what, who waits for what, and since when
    pause, resume                   start no further attempts; start them again
    set task_concurrency=N          attempts in flight at once
    set provider_limits.docker=N    open sessions of a provider at once
    cancel TASK                     cancel a task of the run in RUN_DIR
    cancel-request NAME             stop one request in order

    RUN_DIR may be the run directory of any request of the launch. Only the user who runs it can reach it.
    """
    from ..engine.control_socket import call_controls

    answer = call_controls(run_dir, _command(action, argument))
    if as_json:
        print_json(answer)
    elif action == "status":
        _print_status(answer)
    elif action == "cancel":
        print_text(f"cancelled {argument}: {answer} live attempts; no further ones start")
    else:
        print_text("done")


def _command(action: str, argument: str | None) -> Command:
    from ..engine.control_socket import Command

    wanted = _ARGUMENT[action]
    if bool(wanted) != bool(argument):
        raise ConfigError(f"ctl {action}: {f'needs {wanted}' if wanted else 'takes nothing more'}")
    match action:
        case "set":
            return _setting(str(argument))
        case "cancel":
            return Command(command=action, task_id=str(argument))
    return Command(command=action, name=argument or "")


def _setting(text: str) -> Command:
    from ..engine.control_socket import Command

    name, equals, value = text.partition("=")
    if not equals or not value.isdecimal():
        raise ConfigError(f"ctl set: needs NAME=N with a whole number, got {text!r}")
    return Command(command="set", name=name, value=int(value))


def _print_status(status: dict[str, Any]) -> None:
    live = [(request["name"], one) for request in status["requests"] for one in request["live"]]
    live.sort(key=lambda pair: -pair[1]["seconds"])
    print_tables(
        Table(("", ""), list(_whole(status))),
        Table(
            ("request", "state", "attempts", "in flight", "waits for"), [*map(_request, status["requests"])]
        ),
        Table(("attempt", "request", "for", ""), [_attempt(name, one) for name, one in live[:_SHOWN]]),
    )
    if len(live) > _SHOWN:
        print_text(f"{len(live) - _SHOWN} more in flight; --json has all")


def _whole(status: dict[str, Any]) -> Iterator[tuple[str, str]]:
    state = "stopping" if status["stopping"] else "paused" if status["paused"] else "running"
    yield "launch", f"{state} for {duration(status['seconds'])}"
    yield "task slots", f"{status['working']} of {status['task_concurrency']} taken"
    for name, provider in status["providers"].items():
        limit = "no limit" if provider["limit"] is None else f"limit {provider['limit']}"
        yield f"sessions of {name}", f"{provider['open']} open ({limit}), {provider['waiting']} waited for"


def _request(request: dict[str, Any]) -> tuple[str, ...]:
    done = f"{request['done']}/{request['attempts']}" if request["attempts"] else "-"
    return request["name"], request["state"], done, str(len(request["live"])), request["waits_for"] or "-"


def _attempt(request: str, attempt: dict[str, Any]) -> tuple[str, ...]:
    name = f"{attempt['task_id']}#{attempt['attempt']}"
    trial = f" (trial {attempt['trial']})" if attempt["trial"] > 1 else ""
    return f"{name}{trial}", request, duration(attempt["seconds"]), attempt["doing"]
