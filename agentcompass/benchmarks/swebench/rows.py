"""Read rows in the published schema from Parquet, JSON or JSON Lines; fields that we do not know are kept."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ConfigError

_REQUIRED = (
    "instance_id",
    "repo",
    "base_commit",
    "problem_statement",
    "test_patch",
    "FAIL_TO_PASS",
    "PASS_TO_PASS",
)
FORMATS = (".parquet", ".json", ".jsonl", ".json.gz", ".jsonl.gz")


@dataclass(frozen=True, slots=True)
class Row:
    """
    One instance.

    Args:
        place: File and row, for messages.
        values: Its fields as they are in the file.
    """

    place: str
    values: Mapping[str, Any]

    def text(self, field: str) -> str:
        """Return a text field; empty if it is absent or null."""
        value = self.values.get(field)
        return value if isinstance(value, str) else "" if value is None else str(value)

    def tests(self, field: str) -> list[str]:
        """
        Return a list of test names, which is a list or a text that holds a JSON list.

        Raises:
            ConfigError: It is neither.
        """
        value = self.values[field]
        try:
            names = json.loads(value) if isinstance(value, str) else list(value)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{self.place}: {field} is no JSON list of test names: {error}") from error
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"{self.place}: {field} must be a list of test names, not {value!r:.80}")
        return names


def read_rows(path: Path, *, name: str) -> list[Row]:
    """
    Read all rows of a file; blocks.

    Args:
        name: What people call the file.

    Raises:
        ConfigError: It cannot be read, has an unknown format, or a row lacks a field.
    """
    try:
        rows = [_checked(Row(f"{name}: row {number}", values)) for number, values in _numbered(path, name)]
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror or error}") from error
    if not rows:
        raise ConfigError(f"{name}: there is no row in the file")
    return rows


def _checked(row: Row) -> Row:
    missing = [field for field in _REQUIRED if row.values.get(field) is None]
    if missing:
        raise ConfigError(f"{row.place}: lacks {', '.join(missing)} (needed: {', '.join(_REQUIRED)})")
    return row


def _numbered(path: Path, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    if path.name.endswith(".parquet"):
        found: Any = _parquet(path, name)
    elif path.name.endswith((".jsonl", ".jsonl.gz")):
        found = _json_lines(path, name)
    elif path.name.endswith((".json", ".json.gz")):
        found = _parsed(_bytes(path, name), name)
        # Some tools write an object with the instance ids as keys.
        found = list(found.values()) if isinstance(found, dict) else found
    else:
        raise ConfigError(f"{name}: unknown format; use one of {', '.join(FORMATS)}")
    if not isinstance(found, list):
        raise ConfigError(f"{name}: must hold a list of rows")
    for number, values in enumerate(found, start=1):
        if not isinstance(values, dict):
            raise ConfigError(f"{name}: row {number} is {values!r:.60}, not an object")
        yield number, values


def _bytes(path: Path, name: str) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise ConfigError(f"{name} is no whole gzip file: {error}") from error
    return data.removeprefix(b"\xef\xbb\xbf")


def _json_lines(path: Path, name: str) -> list[Any]:
    lines = enumerate(_bytes(path, name).split(b"\n"), start=1)
    return [_parsed(line, f"{name}:{number}") for number, line in lines if line.strip()]


def _parsed(data: bytes, place: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:  # also text that is no UTF-8
        raise ConfigError(f"{place}: {error}") from error


def _parquet(path: Path, name: str) -> list[Any]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ConfigError(
            f"reading {name} needs pyarrow: pip install 'agentcompass[swebench]', or take JSON Lines"
        ) from error
    try:
        rows: list[Any] = parquet.read_table(path).to_pylist()
    except ArrowException as error:
        raise ConfigError(f"{name} is no whole Parquet file: {error}") from error
    return rows
