"""SWE-bench and sets of its shape: resolve an issue of a real repository, judged by its tests."""

from __future__ import annotations

from .benchmark import SweBench, SweBenchLite, SweBenchMultilingual, SweBenchVerified

__all__ = ["SweBench", "SweBenchLite", "SweBenchMultilingual", "SweBenchVerified"]
