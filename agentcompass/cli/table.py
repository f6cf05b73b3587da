"""Small tables: drawn with rich on a terminal, plain aligned text elsewhere; cells are shown literally."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, cast

from ..progress.output import Output
from ..progress.text import cell_width, show

_CELL_CELLS_ON_TERMINAL = 40
_CELL_CELLS = 80


@dataclass(frozen=True, slots=True)
class Table:
    """
    Rows of text.

    Args:
        head: Names of the columns, in lower case; all empty for none.
        rows: Each as long as the head. The last column may be of any length.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def print_tables(*tables: Table) -> None:
    """Print those tables that have rows; columns of the same position are equally wide in all of them."""
    output = Output(sys.stdout)
    cells = _CELL_CELLS_ON_TERMINAL if output.isatty() else _CELL_CELLS
    literal = [
        Table(table.head, [_literal(row, cells) for row in table.rows]) for table in tables if table.rows
    ]
    widths = _widths(literal)
    if output.isatty():
        _draw(output, literal, widths)
    else:
        blocks = ["".join(f"{line}\n" for line in _plain_lines(table, widths)) for table in literal]
        output.write("".join(f"{block}\n" for block in blocks))


def _literal(row: Sequence[str], cells: int) -> list[str]:
    """Return the cells as they may be shown, all but the last one cut to a width."""
    *first, last = row
    return [*(show(cell, cells) for cell in first), show(last)]


def _widths(tables: Sequence[Table]) -> list[int]:
    """Return the width of each column; the last one of a table needs none."""
    rows = [row[:-1] for table in tables for row in [table.head, *table.rows]]
    count = max(map(len, rows), default=0)
    return [max(cell_width(row[at]) for row in rows if at < len(row)) for at in range(count)]


def _plain_lines(table: Table, widths: Sequence[int]) -> Iterator[str]:
    for row in [table.head, *table.rows] if any(table.head) else table.rows:
        cells = [
            cell + " " * (width - cell_width(cell)) for cell, width in zip(row[:-1], widths, strict=False)
        ]
        yield "  ".join([*cells, row[-1]]).rstrip()


def _draw(output: Output, tables: Sequence[Table], widths: Sequence[int]) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(file=cast("IO[str]", output), width=output.size()[0], force_jupyter=False)
    for table in tables:
        drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(table.head))
        drawn.header_style = "dim"
        for name, width in zip(table.head[:-1], widths, strict=False):
            drawn.add_column(Text(name), min_width=width, no_wrap=True)
        drawn.add_column(Text(table.head[-1]), overflow="fold")
        for row in table.rows:
            drawn.add_row(*map(Text, row))
        console.print(drawn)
        console.print()
