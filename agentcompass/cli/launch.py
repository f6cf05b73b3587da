"""``agentcompass launch``: run the requests of a YAML or JSON file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource

from ..errors import ConfigError, nearest
from ..records import RunStatus
from ..spec.options import ConcurrencyOptions, OutputOptions, RunArguments, RuntimeOptions
from .exit_codes import exit_code
from .launch_text import print_outcome, print_plans
from .masking import scrubber_of, without_secrets
from .options import field_options, given_values, with_option_names
from .run import RunCommand
from .terminal import print_json, print_note

if TYPE_CHECKING:
    from ..engine.result import OrchestrationResult
    from ..spec.orchestration import OrchestrationSpec
    from ..store.scrub import Scrubber

_HELP = """
Run the requests of a YAML or JSON file, in order, under one limit and one deadline.

A request that fails costs the others nothing. Progress goes to standard error, the outcome of each request to
standard output. The options below lie over what the file says.

\b
  agentcompass launch nightly.yaml --dry-run
  agentcompass launch nightly.yaml
  agentcompass launch nightly.yaml --resume      after an interruption: goes on in place
"""


def _launch(
    *, file: Path, only: Sequence[str], resume: bool, dry_run: bool, as_json: bool, **_fields: object
) -> int:
    ctx = click.get_current_context()
    try:
        spec = _read(ctx, file, only, resume=resume)
    except ConfigError as error:
        raise ConfigError(with_option_names(str(error))) from error
    scrubber = scrubber_of(spec)
    try:
        if dry_run:
            return _plan(spec, scrubber, as_json=as_json)
        return _run(ctx, spec, scrubber, as_json=as_json)
    except ConfigError as error:
        raise ConfigError(scrubber.scrub_text(str(error))) from error


def _read(ctx: click.Context, file: Path, only: Sequence[str], *, resume: bool) -> OrchestrationSpec:
    from ..engine.configuration import read_orchestration

    given = given_values(ctx)
    above: dict[str, Any] = {
        "runtime": {name: value for name, value in given.items() if name in RuntimeOptions.model_fields}
    }
    above |= {name: value for name, value in given.items() if name in ConcurrencyOptions.model_fields}
    output = {name: Path(value) for name, value in given.items() if name in OutputOptions.model_fields}
    spec = read_orchestration(file, config=given.get("config", []), above=above)
    return spec.model_copy(
        update={
            "requests": [
                request.model_copy(
                    update={
                        "output": request.output.model_copy(update=output),
                        "execution": request.execution.model_copy(
                            update={"resume": True} if resume and not request.execution.looks_back else {}
                        ),
                    }
                )
                for request in _chosen(spec, only)
            ]
        }
    )


def _chosen(spec: OrchestrationSpec, only: Sequence[str]) -> list[Any]:
    names = [request.name for request in spec.requests]
    for name in only:
        if name not in names:
            raise ConfigError(
                f"--only: no request {name!r}{nearest(name, names)} (there are: {', '.join(names)})"
            )
    return [request for request in spec.requests if not only or request.name in only]


def _plan(spec: OrchestrationSpec, scrubber: Scrubber, *, as_json: bool) -> int:
    from ..engine.api import plan
    from ..engine.resolve import BrokenRequest

    plans = plan(spec)
    documents = [
        {"name": planned.name, "error": str(planned.error)}
        if isinstance(planned, BrokenRequest)
        else msgspec.to_builtins(planned)
        for planned in plans
    ]
    clean = [without_secrets(document, scrubber) for document in documents]
    if as_json:
        print_json({"task_concurrency": spec.task_concurrency, "requests": clean})
    else:
        print_plans(spec, clean)
    return 2 if any(isinstance(planned, BrokenRequest) for planned in plans) else 0


def _run(ctx: click.Context, spec: OrchestrationSpec, scrubber: Scrubber, *, as_json: bool) -> int:
    from ..engine.api import launch_until_signal

    result, signal_number = launch_until_signal(spec)
    if as_json:
        print_json(without_secrets(result.to_dict(), scrubber))
    else:
        print_outcome(result)
    _print_way_on(ctx, result, scrubber)
    return exit_code(result.status, signal_number)


def _print_way_on(ctx: click.Context, result: OrchestrationResult, scrubber: Scrubber) -> None:
    for request in result.requests:
        if request.error is not None:
            print_note(scrubber.scrub_text(f"{request.name}: error: {request.error}"))
    if result.status is not RunStatus.COMPLETED:
        words = ["agentcompass", "launch", str(ctx.params["file"]), *_typed(ctx), "--resume"]
        print_note(f"{result.status}; continue with:\n  {shlex.join(words)}")


def _typed(ctx: click.Context) -> list[str]:
    """Return the options that were typed and decide where the runs are, and which."""
    words = []
    for name in ("config", "results_dir", "data_dir", "only"):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            values = ctx.params[name]
            for value in values if isinstance(values, tuple) else (values,):
                words += [f"--{name.replace('_', '-')}", str(value)]
    return words


_FIELDS = (
    "config",
    *ConcurrencyOptions.model_fields,
    *RuntimeOptions.model_fields,
    *OutputOptions.model_fields,
)

command = RunCommand(
    "launch",
    callback=_launch,
    help=_HELP,
    params=[
        click.Argument(["file"], type=click.Path(path_type=Path)),
        *field_options([name for name in RunArguments.model_fields if name in _FIELDS]),
        click.Option(["--only"], multiple=True, metavar="NAME", help="Run only this request. Repeatable."),
        click.Option(
            ["--resume"],
            is_flag=True,
            help="Continue the latest run of each request in place, if there is one.",
        ),
        click.Option(["--dry-run"], is_flag=True, help="Print what would be run, and run nothing."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print the result as one JSON document."),
    ],
)
