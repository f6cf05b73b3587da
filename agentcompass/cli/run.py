"""``agentcompass run``: evaluate one benchmark x harness x environment x model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ..errors import ConfigError
from ..records import RunRecord, RunStatus
from ..store.scrub import Scrubber
from .exit_codes import exit_code
from .key_values import RULES
from .masking import without_secrets
from .options import FieldOption, given_values, resume_command, run_parameters, with_option_names
from .terminal import print_json, print_note

if TYPE_CHECKING:
    from ..engine.result import RunResult
    from ..spec.options import RunArguments

_HELP = """
Evaluate one benchmark x harness x environment x model.

Progress goes to standard error, the scores to standard output, and everything else into the directory of
the run. `agentcompass list` tells which benchmarks, harnesses and environments there are.

\b
  agentcompass run humaneval oracle
  agentcompass run humaneval chat MODEL --model-base-url http://host:8000/v1
  agentcompass run humaneval chat MODEL -m temperature=0.2 -k 4 --dry-run
"""
_NAME_COLUMN = 30


class RunCommand(click.Command):
    """A command whose options stand in sections, and that knows options with an optional value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give ``--reuse`` its value; click itself would take the next word for it."""
        values = {
            name: option.optional_value
            for option in self.params
            if isinstance(option, FieldOption) and option.optional_value
            for name in option.opts
        }
        end = args.index("--") if "--" in args else len(args)
        head = [f"{word}={values[word]}" if word in values else word for word in args[:end]]
        return super().parse_args(ctx, [*head, *args[end:]])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section, then the rules of assignments."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                section = getattr(parameter, "section", "Other options")
                name, text = record
                sections.setdefault(section, []).append((name.ljust(_NAME_COLUMN), text))
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records, col_max=_NAME_COLUMN)
        with formatter.section("KEY=VALUE"):
            formatter.write_text(RULES)


def _run(*, dry_run: bool, as_json: bool, **_fields: object) -> int:
    """Run what the context's parameters say, and return the exit code."""
    from ..engine.configuration import run_arguments

    ctx = click.get_current_context()
    scrubber = Scrubber([ctx.params["model_api_key"] or ""])
    try:
        arguments = run_arguments(given_values(ctx))
        key = arguments.key  # the configuration file may have it
        scrubber = Scrubber([key.get_secret_value()] if key else [])
        if dry_run:
            return _plan(arguments, scrubber, as_json=as_json)
        return _evaluate(ctx, arguments, scrubber, as_json=as_json)
    except ConfigError as error:
        raise ConfigError(scrubber.scrub_text(with_option_names(str(error)))) from error


def _plan(arguments: RunArguments, scrubber: Scrubber, *, as_json: bool) -> int:
    from ..engine.api import plan
    from ..engine.resolve import BrokenRequest
    from ..spec.orchestration import as_orchestration
    from .plan import print_plan

    [planned] = plan(as_orchestration(arguments))
    if isinstance(planned, BrokenRequest):
        raise planned.error
    document = without_secrets(msgspec.to_builtins(planned), scrubber)
    if as_json:
        print_json(document)
    else:
        print_plan(planned, msgspec.convert(document["record"], RunRecord), arguments)
        for remark in [*document["problems"], *document["warnings"]]:
            print_note(remark)
    return 0


def _evaluate(ctx: click.Context, arguments: RunArguments, scrubber: Scrubber, *, as_json: bool) -> int:
    from ..engine.api import launch_until_signal
    from ..spec.orchestration import as_orchestration

    orchestration, signal_number = launch_until_signal(as_orchestration(arguments))
    [result] = orchestration.requests
    if isinstance(result.error, ConfigError):
        raise result.error
    if as_json:
        print_json(without_secrets(result.to_dict(), scrubber))
    else:
        _print_scores(result)
    _print_way_on(result, scrubber, resume_command(ctx, result.run_id))
    return exit_code(result.status, signal_number)


def _print_scores(result: RunResult) -> None:
    from ..store.run import load_run
    from .report import print_report

    if result.metrics is not None and result.paths is not None:
        run = load_run(Path(result.paths.run_dir))
        print_report(run, result.metrics, seconds=result.execution.seconds)


def _print_way_on(result: RunResult, scrubber: Scrubber, resume: str) -> None:
    """Say what went wrong and how to go on."""
    if result.error is not None:
        print_note(scrubber.scrub_text(f"error: {result.error}"))
    if result.status is not RunStatus.COMPLETED and result.run_id:
        print_note(scrubber.scrub_text(f"{result.status}; continue with:\n  {resume}"))


command = RunCommand(
    "run",
    callback=_run,
    help=_HELP,
    params=[
        *run_parameters(),
        click.Option(["--dry-run"], is_flag=True, help="Print what would be run, and run nothing."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print the result as one JSON document."),
    ],
)
