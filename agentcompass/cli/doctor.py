"""``agentcompass doctor``: what this machine has for evaluations, and what to do about what it lacks."""

from __future__ import annotations

import click

from .table import Table, print_tables
from .terminal import print_json

_MARKS = {"ok": "ok", "missing": "-", "problem": "!!"}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the table.")
def command(as_json: bool) -> int:
    """
    Check Python, packages, sandboxes, disk, clock and credentials, and tell what to do.

    Nothing is changed, and nothing but a local Docker daemon is asked. The exit code is 1 if something is
    wrong that would spoil a run; what is merely not there is no problem.
    """
    import msgspec

    from ..engine.doctor import examine

    findings = examine()
    if as_json:
        print_json(msgspec.to_builtins(findings))
    else:
        rows = [(_MARKS[one.state], one.what, one.found, one.advice) for one in findings]
        print_tables(Table(("", "what", "found", "what to do"), rows))
    return 1 if any(one.state == "problem" for one in findings) else 0
