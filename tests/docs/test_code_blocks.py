"""The code in the pages does what a reader would see: it runs, offline, in the order of the page."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from nbclient import NotebookClient
from nbformat import v4

from .markdown import PAGES, ROOT, Block, blocks

PLUGINS = sorted((ROOT / "docs" / "examples").glob("*.py"))
PROGRAMS = [
    block for page in PAGES for block in blocks(page) if block.language == "python" and not block.file
]
SHELL_PAGES = [page for page in PAGES if any(block.language == "sh" for block in blocks(page))]


def lay_out(page: Path, folder: Path) -> None:
    """Put into a folder what a page's code expects there: the files that it shows, and the examples."""
    for block in blocks(page):
        if block.file:
            (folder / Path(block.file).name).write_text(block.text, "utf-8")
    for plugin in PLUGINS:
        shutil.copy(plugin, folder)


def run(command: list[str], folder: Path, variables: Mapping[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.name)
def test_python_block_runs(block: Block, tmp_path: Path, environment_variables: Mapping[str, str]) -> None:
    """Each Python block is a whole program; one that awaits at its top is a notebook's cell."""
    lay_out(block.page, tmp_path)
    if "await " in block.text and "async def" not in block.text:
        assert run_in_notebook(block, tmp_path) == ["display_data", "execute_result"]
        return
    (tmp_path / "program.py").write_text(block.text, "utf-8")
    run([sys.executable, "program.py"], tmp_path, environment_variables)


def run_in_notebook(block: Block, folder: Path) -> list[str]:
    """Run a block as a cell; return the kinds of its outputs."""
    notebook = v4.new_notebook(cells=[v4.new_code_cell(block.text)])  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, kernel_name="python3", timeout=40, resources=resources).execute()
    return [output.output_type for output in notebook.cells[0].outputs]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_first_program_of_the_readme_runs_in_a_notebook(
    tmp_path: Path, environment_variables: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``run_evaluation`` works where an event loop is running: progress in the cell, then what is printed."""
    for name in ("MODEL_NAME", "MODEL_BASE_URL", "MODEL_API_KEY"):
        monkeypatch.setenv(name, environment_variables[name])
    block = next(block for block in PROGRAMS if block.page.name == "README.md")
    assert run_in_notebook(block, tmp_path) == ["display_data", "stream"]


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("page", SHELL_PAGES, ids=lambda page: page.name)
def test_commands_run(page: Path, tmp_path: Path, environment_variables: Mapping[str, str]) -> None:
    """The commands of a page succeed one after another, as typed; those of make only if they exist."""
    lay_out(page, tmp_path)
    for block in blocks(page):
        if block.language == "sh":
            for line in block.text.replace("\\\n", " ").splitlines():
                run_line(line, tmp_path, environment_variables)


def run_line(line: str, folder: Path, variables: Mapping[str, str]) -> None:
    match shlex.split(line, comments=True):
        case ["make", target]:
            run(["make", "--dry-run", target], ROOT, variables)
        case ["source", path]:
            assert path == f"{makefile_variable('VENV')}/bin/activate"
        case ["agentcompass", *_]:
            run(["bash", "-c", line], folder, variables)
        case other:
            raise AssertionError(f"no test knows how to run {other}")


def makefile_variable(name: str) -> str:
    lines = (ROOT / "Makefile").read_text("utf-8").splitlines()
    return next(line.partition(":=")[2].strip() for line in lines if line.startswith(f"{name} :="))


def test_demo_runs_what_the_readme_says() -> None:
    """``make demo`` evaluates the oracle on all of HumanEval."""
    command = ["make", "--dry-run", "--no-print-directory", "demo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].endswith("agentcompass run humaneval oracle")
