"""Which tasks a run leaves out because an audit found something wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..errors import ConfigError
from ..records import SCHEMA_VERSION, AuditRecord
from .loading import PlannedTask


def excluded_tasks(path: Path, benchmark_id: str, tasks: Sequence[PlannedTask]) -> list[str]:
    """
    Return the ids of the tasks with findings, in the order of the benchmark; blocks.

    Raises:
        ConfigError: The file is no audit of this benchmark, or one of these tasks has changed since.
    """
    audit = _read(path)
    if audit.benchmark.id != benchmark_id:
        raise ConfigError(
            f"exclude_audit: {str(path)!r} is an audit of {audit.benchmark.id!r}, not of {benchmark_id!r}"
        )
    failed = {task.task_id: task.task_hash for task in audit.tasks if task.findings}
    found = [planned for planned in tasks if planned.task.id in failed]
    changed = [planned.task.id for planned in found if planned.digest != failed[planned.task.id]]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise ConfigError(
            f"exclude_audit: the content of {changed[0]!r}{more} has changed since the audit "
            f"{str(path)!r}; audit the benchmark again"
        )
    return [planned.task.id for planned in found]


def _read(path: Path) -> AuditRecord:
    try:
        audit = msgspec.json.decode(path.read_bytes(), type=AuditRecord)
    except OSError as error:
        raise ConfigError(f"exclude_audit: cannot read {str(path)!r}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"exclude_audit: {str(path)!r} is no audit.json: {error}") from error
    if audit.schema_version > SCHEMA_VERSION:
        raise ConfigError(
            f"exclude_audit: {str(path)!r} was written by a newer version of agentcompass; update to read it"
        )
    return audit
