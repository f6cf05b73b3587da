"""Print to standard output and standard error, whatever the text, the encoding, or the reader."""

from __future__ import annotations

import errno
import json
import os
import sys
from typing import Any

import click

from ..progress.output import Output
from ..progress.text import show


def print_text(text: str) -> None:
    """Print text for a person; a reader that has gone away is no error."""
    Output(sys.stdout).write(f"{text}\n")


def print_note(text: str) -> None:
    """Print text to standard error, control characters escaped."""
    lines = [show(line) for line in text.splitlines()]
    Output(sys.stderr).write("\n".join(lines) + "\n")


def print_json(value: Any) -> None:  # anything that JSON can express
    """
    Print one JSON document, in UTF-8 whatever the locale.

    Raises:
        click.ClickException: It could not be written.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    data = text.encode("utf-8", "replace") + b"\n"
    try:
        click.echo(data, nl=False)
    except OSError as error:
        # What is still buffered would fail again, loudly, when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            raise click.ClickException(f"cannot write to standard output: {error.strerror}") from error
