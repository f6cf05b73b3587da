"""The command ``agentcompass``: which commands there are, and how each ending becomes an exit code."""

from __future__ import annotations

import importlib
import sys
from typing import Any, NoReturn

import click

from .._version import __version__
from ..errors import CompassError, ConfigError

# The text stands here and the module is imported on first use: `--help` must not wait for pydantic.
_COMMANDS = {
    "run": "Evaluate one benchmark x harness x environment x model.",
    "launch": "Run the requests of a YAML or JSON file, in order, under one limit.",
    "ctl": "Look into a running launch and steer it.",
    "audit": "Find out which tasks of a benchmark cannot be trusted.",
    "summary": "Recompute and print the scores of a run.",
    "show": "Look into a run: what did not succeed, or all about one task.",
    "compare": "Compare runs task by task: the difference, and whether it is more than chance.",
    "export-predictions": "Write the patches of a run in the format of SWE-bench.",
    "list": "List the benchmarks, harnesses, environments or recipes.",
    "env": "Show and remove containers that runs have left behind or kept.",
    "config": "Show which values hold and why, what a component takes, the schema of launch files.",
    "doctor": "Check what this machine has for evaluations, and tell what to do.",
    "completion": "Print the completion script of a shell.",
}
_EXIT_CODES = (
    ("0", "complete: every planned attempt was evaluated"),
    ("1", "failed: no attempt could be evaluated, or the run had to end"),
    ("2", "wrong input; nothing was run"),
    ("3", "partial: some attempts are missing data"),
    ("4", "timed out: the deadline of the run came first"),
    ("5", "cancelled by somebody else, e.g. by agentcompass ctl"),
    ("130, 143", "interrupted by Ctrl-C (SIGINT) or SIGTERM; what was finished is kept"),
)
_INTERRUPTED = 130


class CommandLine(click.Group):
    """A group that imports a command when it is called, and never shows a traceback for a user's mistake."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in _COMMANDS:
            return None
        module = cmd_name.replace("-", "_")
        command: click.Command = importlib.import_module(f".{module}", __package__).command
        command.short_help = _COMMANDS[cmd_name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Explain the exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl(_EXIT_CODES)

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> NoReturn:
        """Run the command line and exit; the arguments are those of click."""
        extra["prog_name"] = "agentcompass"  # also for `python -m`
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.reconfigure(errors="replace")  # type: ignore[union-attr]
        sys.exit(self._exit_code(*args, **extra))

    def _exit_code(self, *args: Any, **extra: Any) -> int:
        try:
            code: object = super().main(*args, standalone_mode=False, **extra)  # type: ignore[call-overload]  # passed on
        except click.Abort:
            return _INTERRUPTED
        except click.ClickException as error:
            _print_error(_in_our_words(error))
            return error.exit_code
        except CompassError as error:
            _print_error(str(error))
            return 2 if isinstance(error, ConfigError) else 1
        return code if isinstance(code, int) else 0


def _in_our_words(error: click.ClickException) -> str:
    message = error.format_message()
    message = message[:1].lower() + message[1:].removesuffix(".")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{message}\nsee '{error.ctx.command_path} --help'"
    return message


def _print_error(message: str) -> None:
    from .terminal import print_note

    print_note(f"error: {message}")


@click.group(
    cls=CommandLine,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> int:
    """Evaluate agents: any benchmark x any harness x any environment x any model."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        return 2
    return 0
