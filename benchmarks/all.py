"""Run every measurement; what `make bench` calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = ("startup", "engine_overhead", "many_requests", "chat_client", "resume", "loop_lag", "sessions")

if __name__ == "__main__":
    for name in SCRIPTS:
        subprocess.run(
            [sys.executable, str(Path(__file__).with_name(f"{name}.py")), *sys.argv[1:]], check=True
        )
