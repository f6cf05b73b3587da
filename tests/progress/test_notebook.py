from __future__ import annotations

from collections.abc import Callable

import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode, v4

PROGRAM = """
import anyio, threading
from agentcompass.progress.hub import open_progress
from tests.progress.events import finished, run_finished, run_started, started

async def main():
    async with open_progress(mode="auto") as hub:
        for event in [run_started(1, request="<b>demo</b>"), started("a", request="<b>demo</b>")]:
            hub.emit(event)
        hub.print_line("a log line")
        for event in [finished("a", request="<b>demo</b>"), run_finished(request="<b>demo</b>")]:
            hub.emit(event)
"""


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_notebook_shows_progress_in_one_area_of_its_cell() -> None:
    """From the kernel's loop and from a thread's: one updated area, text escaped, log lines beside it."""
    new_cell: Callable[[str], NotebookNode] = v4.new_code_cell
    new_notebook: Callable[..., NotebookNode] = v4.new_notebook
    here = new_cell(PROGRAM + "await main()")
    in_thread = new_cell("t = threading.Thread(target=anyio.run, args=(main,)); t.start(); t.join()")
    notebook = new_notebook(cells=[here, in_thread])
    NotebookClient(notebook, kernel_name="python3", timeout=40).execute()
    for cell in notebook.cells:
        (area,) = [output for output in cell.outputs if output.output_type == "display_data"]
        (log,) = [output for output in cell.outputs if output.output_type == "stream"]
        assert area.data["text/plain"] == "<b>demo</b> · completed in 0s · 1/1 attempts · score 1.000"
        assert "&lt;b&gt;demo&lt;/b&gt; · completed" in area.data["text/html"]
        assert log.text == "a log line\n"
