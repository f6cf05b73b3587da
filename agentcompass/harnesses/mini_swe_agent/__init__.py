"""mini-swe-agent: its own loop runs on this machine, its commands run in the session, its model is ours."""

from __future__ import annotations

from .harness import MiniSweAgent, MiniSweAgentParams

__all__ = ["MiniSweAgent", "MiniSweAgentParams"]
