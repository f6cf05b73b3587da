"""Which runs stand against each other, when folders are named instead of single runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..errors import ConfigError
from ..store.layout import RUN_FILE
from ..store.run import LoadedRun, load_run, readable_runs


@dataclass(frozen=True, slots=True)
class RunPairs:
    """
    Runs side by side.

    Args:
        pairs: First and second run of each.
        unmatched: Runs in a folder that have no counterpart in the other.
    """

    pairs: Sequence[tuple[LoadedRun, LoadedRun]]
    unmatched: Sequence[LoadedRun]


def find_pairs(paths: Sequence[Path]) -> RunPairs:
    """
    Pair the first path with the second, the third with the fourth, and so on; blocks.

    Of a request's folder the latest run is taken, of a results directory the latest run of each request. Runs
    of two folders belong together by the name of their request, else by benchmark and parameters, else by
    benchmark.

    Raises:
        ConfigError: A path leads to no run, a run is compared with itself, or it is not clear which belong
            together.
    """
    if len(paths) < 2 or len(paths) % 2:
        raise ConfigError(f"runs are compared in pairs, A with B; {_count(len(paths))} given")
    pairs: list[tuple[LoadedRun, LoadedRun]] = []
    unmatched: list[LoadedRun] = []
    for path_a, path_b in zip(paths[::2], paths[1::2], strict=True):
        found = _match(path_a, path_b)
        pairs += found.pairs
        unmatched += found.unmatched
    for a, b in pairs:
        if a.run_dir.resolve() == b.run_dir.resolve():
            raise ConfigError(f"{str(a.run_dir)!r} is named twice; compare it with another run")
    return RunPairs(pairs, unmatched)


def _count(number: int) -> str:
    return "1 path was" if number == 1 else f"{number} paths were"


def _match(path_a: Path, path_b: Path) -> RunPairs:
    runs_a, runs_b = _runs_in(path_a), _runs_in(path_b)
    if _is_run(path_a) and _is_run(path_b):
        return RunPairs([(runs_a[0], runs_b[0])], [])
    pairs: list[tuple[LoadedRun, LoadedRun]] = []
    for key in (_request, _benchmark_as_configured, _benchmark):
        matched = _match_by(key, runs_a, runs_b)
        pairs += matched
        taken = {id(run) for pair in matched for run in pair}
        runs_a = [run for run in runs_a if id(run) not in taken]
        runs_b = [run for run in runs_b if id(run) not in taken]
    _refuse_ambiguous(runs_a, runs_b)
    if not pairs:
        raise ConfigError(
            f"{str(path_a)!r} and {str(path_b)!r} have no benchmark in common: "
            f"{_benchmarks(runs_a)} in A, {_benchmarks(runs_b)} in B"
        )
    return RunPairs(pairs, [*runs_a, *runs_b])


def _match_by(
    key: Callable[[LoadedRun], Hashable], runs_a: Sequence[LoadedRun], runs_b: Sequence[LoadedRun]
) -> list[tuple[LoadedRun, LoadedRun]]:
    """Pair the runs that are alone with their key on both sides, in the order of the first."""
    grouped_a, grouped_b = _grouped(key, runs_a), _grouped(key, runs_b)
    return [
        (group[0], grouped_b[value][0])
        for value, group in grouped_a.items()
        if len(group) == 1 and len(grouped_b.get(value, ())) == 1
    ]


def _grouped(
    key: Callable[[LoadedRun], Hashable], runs: Sequence[LoadedRun]
) -> dict[Hashable, list[LoadedRun]]:
    groups: defaultdict[Hashable, list[LoadedRun]] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return dict(groups)


def _request(run: LoadedRun) -> Hashable:
    return run.record.name, run.record.benchmark.id


def _benchmark_as_configured(run: LoadedRun) -> Hashable:
    benchmark = run.record.benchmark
    return benchmark.id, msgspec.json.encode(benchmark.params, order="deterministic")


def _benchmark(run: LoadedRun) -> Hashable:
    return run.record.benchmark.id


def _refuse_ambiguous(runs_a: Sequence[LoadedRun], runs_b: Sequence[LoadedRun]) -> None:
    grouped_b = _grouped(_benchmark, runs_b)
    for benchmark, group in _grouped(_benchmark, runs_a).items():
        if benchmark in grouped_b:
            raise ConfigError(
                f"it is not clear which runs of {str(benchmark)!r} belong together: {_places(group)} in A, "
                f"{_places(grouped_b[benchmark])} in B; name the run directories in pairs: A1 B1 A2 B2 ..."
            )


def _places(runs: Sequence[LoadedRun]) -> str:
    return ", ".join(repr(str(run.run_dir)) for run in runs)


def _benchmarks(runs: Sequence[LoadedRun]) -> str:
    return ", ".join(sorted({run.record.benchmark.id for run in runs}))


def _is_run(path: Path) -> bool:
    return (path / RUN_FILE).is_file()


def _runs_in(path: Path) -> list[LoadedRun]:
    if _is_run(path):
        return [load_run(path)]
    latest = next(readable_runs(path), None)
    if latest is not None:
        return [latest]
    runs = [run for folder in _folders(path) if (run := next(readable_runs(folder), None)) is not None]
    if not runs:
        raise ConfigError(f"{str(path)!r} is no run directory (it has no {RUN_FILE}), and none lies in it")
    return runs


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(folder for folder in path.iterdir() if folder.is_dir())
    except FileNotFoundError:
        raise ConfigError(f"there is no {str(path)!r}; name two run directories") from None
    except OSError as error:
        raise ConfigError(f"cannot look for runs in {str(path)!r}: {error.strerror}") from error
