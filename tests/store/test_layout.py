from __future__ import annotations

import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentcompass.errors import ConfigError
from agentcompass.store.layout import (
    artifact_path,
    detail_path,
    namespace,
    reserve_run_dir,
    run_paths,
    slug,
)

_TROUBLE = [
    "../../etc/x",
    "a\\b",
    "con",
    "nul.txt",
    ".",
    "..",
    "",
    "-rf",
    "_",
    "a b",
    "a%2Fb",
    "x\ny",
    "org/name:tag",
    "ends.",
    "nul\0byte",
    "\ud800",
    "日本" * 60,
    "a" * 300,
]
_TWINS = [
    ("a", "A"),
    (unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")),
    ("a/b", "a-b"),
    ("a/b", "a\\b"),
    ("x" * 290 + "1", "x" * 290 + "2"),
    ("1", "01"),
    ("1", "1.0"),
    ("con", "x-con"),
]


@pytest.mark.parametrize("text", _TROUBLE)
def test_any_text_becomes_one_harmless_file_name(text: str, tmp_path: Path) -> None:
    """A slug is a short plain ASCII name that can be created, inside the folder it is meant for."""
    name = slug(text)

    (tmp_path / name).touch()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert len(name) <= 80
    assert name[0].isalnum()
    assert name[-1].isalnum()


@pytest.mark.parametrize("text", ["astropy__astropy-12907", "humaneval-0", "1", "a.b_c"])
def test_an_ordinary_id_is_its_own_file_name(text: str) -> None:
    """People find the files of ordinary tasks by their ids."""
    assert slug(text) == text


@pytest.mark.parametrize(("one", "other"), _TWINS)
def test_similar_ids_get_files_of_their_own(one: str, other: str) -> None:
    """Ids that differ never meet on disk, not even where case and Unicode forms are ignored."""
    assert slug(one).lower() != slug(other).lower()


@given(st.text(), st.text())
def test_different_texts_never_share_a_slug(one: str, other: str) -> None:
    """Two texts have the same slug, on a file system that ignores case, only if they are the same."""
    assert (slug(one).lower() == slug(other).lower()) == (one == other)


@given(st.text(min_size=1))
def test_a_slug_cannot_be_forged(text: str) -> None:
    """A text that looks like another's slug gets one of its own."""
    assume(slug(text) != text)
    assert slug(slug(text)) != slug(text)


def test_parts_of_a_namespace_do_not_run_into_each_other() -> None:
    """Underscores inside a part are not mistaken for the separator."""
    combinations = [("a__b", "c"), ("a", "b__c"), ("a_", "b"), ("a", "_b")]
    assert len({namespace(*pair, "h", "e") for pair in combinations}) == len(combinations)


def test_a_namespace_of_long_names_is_one_valid_file_name(tmp_path: Path) -> None:
    """Four names of any length fit into one directory name."""
    (tmp_path / namespace(*(letter * 300 for letter in "abcd"))).mkdir()


def test_each_trial_and_attempt_has_files_of_its_own() -> None:
    """Retries keep the evidence of earlier trials; tasks with dots in their ids do not interfere."""
    numbers = (1, 2, 11)
    ids = ("a", "a.1", "a.1.t2", "a.t2")
    keys = [(task, attempt, trial) for task in ids for attempt in numbers for trial in numbers]
    assert len({detail_path(task, attempt=a, trial=t) for task, a, t in keys}) == len(keys)
    assert len({artifact_path(task, "log", attempt=a, trial=t) for task, a, t in keys}) == len(keys)
    assert detail_path("a", attempt=1, trial=1) == "details/a.1.json"


@pytest.mark.slow
def test_processes_that_start_in_the_same_second_get_different_runs(tmp_path: Path) -> None:
    """Five processes with one name end up with five run directories."""
    script = (
        "import sys; from pathlib import Path; from agentcompass.store.layout import reserve_run_dir\n"
        "print(reserve_run_dir(Path(sys.argv[1]), 'demo'))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True)
        for _ in range(5)
    ]
    run_dirs = {process.communicate()[0].strip() for process in processes}
    assert len(run_dirs) == 5
    assert all(Path(run_dir).is_dir() for run_dir in run_dirs)


def test_runs_of_one_second_sort_by_time(tmp_path: Path) -> None:
    """The latest run is the last one by name, also among runs a few milliseconds apart."""
    names = []
    for _ in range(20):
        names.append(reserve_run_dir(tmp_path, "demo").name)
        millisecond = time.time_ns() // 10**6
        while time.time_ns() // 10**6 == millisecond:
            pass
    assert names == sorted(names)


def test_a_given_run_id_is_never_taken_twice(tmp_path: Path) -> None:
    """Results are not written over; the message names the way out."""
    run_dir = reserve_run_dir(tmp_path, "demo", run_id="mine")
    (run_dir / "run.json").write_text("{}")

    with pytest.raises(ConfigError, match="choose another run_id"):
        reserve_run_dir(tmp_path, "demo", run_id="mine")


def test_a_journal_without_its_run_file_is_not_taken_over(tmp_path: Path) -> None:
    """A lost run.json does not turn the results beside it into an empty directory."""
    run_dir = reserve_run_dir(tmp_path, "demo", run_id="mine")
    (run_dir / "attempts.jsonl").write_text("x")

    with pytest.raises(ConfigError, match="results"):
        reserve_run_dir(tmp_path, "demo", run_id="mine")


def test_a_run_that_died_before_writing_gives_its_id_back(tmp_path: Path) -> None:
    """Between making the directory and the first file, a crash does not use up the id."""
    run_dir = reserve_run_dir(tmp_path, "demo", run_id="mine")
    (run_dir / "run.lock").touch()
    assert reserve_run_dir(tmp_path, "demo", run_id="mine") == run_dir


@pytest.mark.parametrize("run_id", ["", "..", "a/b", "-x", "a\n", "x" * 81])
def test_a_run_id_that_is_no_plain_name_is_refused(run_id: str, tmp_path: Path) -> None:
    """A run id cannot lead out of its folder."""
    with pytest.raises(ConfigError, match="plain name"):
        reserve_run_dir(tmp_path, "demo", run_id=run_id)


def test_results_dir_that_is_a_file_is_an_error_of_the_input(tmp_path: Path) -> None:
    """The message names the path and what to do."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file.*choose a writable results_dir"):
        reserve_run_dir(tmp_path / "file", "demo")


def test_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative run directory still gives paths that hold after a change of directory."""
    monkeypatch.chdir(tmp_path)
    paths = run_paths(Path("runs/one"))
    assert paths.journal == str(tmp_path / "runs/one/attempts.jsonl")
