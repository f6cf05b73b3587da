"""The architecture, read from the imports: they go downward only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "agentcompass"
LAYERS = {
    "errors": 0,
    "_version": 0,
    "clock": 0,
    "daemon": 0,
    "records": 1,
    "spec": 1,
    "logs": 1,
    "protocols": 2,
    "environments": 3,
    "harnesses": 3,
    "benchmarks": 3,
    "llm": 3,
    "store": 3,
    "metrics": 3,
    "progress": 3,
    "engine": 4,
    "selftest": 5,
    "cli": 6,
    "__init__": 7,
    "__main__": 7,
}
MODULES = sorted(PACKAGE.rglob("*.py"))


def part(module: Path) -> str:
    """Name the top-level part that a module belongs to."""
    return module.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_parts(module: Path) -> set[str]:
    """Name the parts of the package that a module imports, also inside functions and type-checking blocks."""
    package = ("agentcompass", *module.relative_to(PACKAGE).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        match node:
            case ast.ImportFrom(level=0, module=str(name)):
                targets = [name.split(".")]
            case ast.ImportFrom(level=level, module=name) if level:
                base = list(package[: len(package) - level + 1]) + (name.split(".") if name else [])
                targets = [base] if len(base) > 1 else [[*base, alias.name] for alias in node.names]
            case ast.Import(names=names):
                targets = [alias.name.split(".") for alias in names]
            case _:
                continue
        found |= {target[1] for target in targets if target[0] == "agentcompass" and len(target) > 1}
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_downward_only(module: Path) -> None:
    """A module imports lower layers and its own part, never an upper layer or a sibling."""
    mine = part(module)
    upward = {other for other in imported_parts(module) if other != mine and LAYERS[other] >= LAYERS[mine]}
    assert not upward, f"{mine} must not import {sorted(upward)}"


def test_every_part_has_a_layer() -> None:
    """A new part of the package must be given its place."""
    assert {part(module) for module in MODULES} <= LAYERS.keys()
