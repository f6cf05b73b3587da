"""What the documented commands and programs find when they run: an endpoint, and the installed program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def environment_variables() -> Iterator[Mapping[str, str]]:
    """Variables of a person who has set up a model; its endpoint answers "Paris" to everything."""
    server = [sys.executable, "-m", "agentcompass.llm.mock_server", "--port", "0", "--answer", "Paris"]
    with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield {
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "MODEL_NAME": "some-model",
                "MODEL_BASE_URL": process.stdout.readline().strip(),
                "MODEL_API_KEY": "sk-documented",
            }
        finally:
            process.kill()
