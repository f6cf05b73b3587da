"""Components are found by id, lazily; collisions and mistakes are named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from agentcompass._version import InstalledVersion
from agentcompass.engine import registry
from agentcompass.engine.registry import component_ids, find_component, load_plugins
from agentcompass.errors import ConfigError, UnknownComponentError


class GreetingParams(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    greeting: str = "hello"
    times: int = 1


class Greeter:
    """A component with parameters."""

    def __init__(self, params: GreetingParams) -> None:
        self.params = params


class Plain:
    """A component without parameters."""


@pytest.fixture(autouse=True)
def forget_registrations() -> Iterator[None]:
    """Leave the process-wide registry as it was."""
    before = {key: dict(value) for key, value in registry._registered.items()}
    yield
    registry._registered.clear()
    registry._registered.update(before)


def test_registered_class_is_found_and_built() -> None:
    """The decorator registers; parameters are validated into the constructor's model."""
    registry.harness("greeter")(Greeter)
    built, params = find_component("harness", "greeter").build({"times": "3"})
    assert built.params == GreetingParams(times=3)
    assert built.params is params


def test_class_without_constructor_takes_no_parameters() -> None:
    """A parameter for a component that has none is an error."""
    registry.harness("plain")(Plain)
    component = find_component("harness", "plain")
    assert isinstance(component.build({})[0], Plain)
    with pytest.raises(ConfigError, match=r"harness_params.x: no such option"):
        component.build({"x": 1})


def test_wrong_parameter_names_field_and_value() -> None:
    """The message says which parameter, which value, and what is near."""
    registry.harness("greeter")(Greeter)
    component = find_component("harness", "greeter")
    with pytest.raises(ConfigError, match=r"harness_params.times: .*valid integer.* got 'many'"):
        component.build({"times": "many"})
    with pytest.raises(ConfigError, match=r"harness_params.greting: .*did you mean 'greeting'"):
        component.build({"greting": "hi"})


def test_unknown_id_lists_what_exists() -> None:
    """A mistyped id is answered with the nearest one and the list."""
    with pytest.raises(UnknownComponentError, match=r"did you mean 'humaneval'.*available: .*jsonl"):
        find_component("benchmark", "humanevel")


@pytest.mark.parametrize("swapped", [False, True])
def test_collision_names_both_sources(swapped: bool) -> None:
    """Two classes under one id are an error in any order; the qualified name selects."""
    classes: list[type] = [Greeter, Plain]
    for cls in reversed(classes) if swapped else classes:
        registry.benchmark("gsm")(cls)
    with pytest.raises(ConfigError, match=r"several sources.*test_registry:Greeter/gsm or .*:Plain/gsm"):
        find_component("benchmark", "gsm")
    assert find_component("benchmark", f"{__name__}:Plain/gsm").cls is Plain


def test_registering_again_replaces() -> None:
    """A notebook cell that runs twice does not collide with itself."""
    registry.harness("greeter")(Greeter)
    registry.harness("greeter")(Greeter)
    assert find_component("harness", "greeter").cls is Greeter


def test_plugin_file_registers(tmp_path: Path) -> None:
    """A component in a user's own file is found by its id, and loading twice is harmless."""
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from agentcompass.engine.registry import harness\n@harness('from-file')\nclass Mine: ...\n"
    )
    load_plugins([str(plugin)])
    load_plugins([str(plugin)])
    assert "from-file" in component_ids("harness")


@pytest.mark.parametrize(
    ("content", "message"),
    [("raise ValueError('broken')", "ValueError: broken"), ("def (", "SyntaxError")],
)
def test_broken_plugin_is_named(tmp_path: Path, content: str, message: str) -> None:
    """Whatever a plug-in raises is a mistake in the input, not a crash."""
    plugin = tmp_path / "broken.py"
    plugin.write_text(content)
    with pytest.raises(ConfigError, match=rf"plugin '.*broken.py' cannot be loaded: {message}"):
        load_plugins([str(plugin)])


def test_missing_plugin_is_named() -> None:
    """So is one that does not exist."""
    with pytest.raises(ConfigError, match="plugin 'no_such_module'"):
        load_plugins(["no_such_module"])
    with pytest.raises(ConfigError, match="no such file"):
        load_plugins(["/nonexistent/x.py"])


@pytest.mark.slow
def test_entry_points_are_found(tmp_path: Path) -> None:
    """An installed package's components are found by their entry points, and imported on first use."""
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[agentcompass.harnesses]\nacme = acme_mod:Acme\n")
    (tmp_path / "acme_mod.py").write_text("class Acme:\n    'From acme.'\n")
    code = (
        "import sys\n"
        "from agentcompass.engine.registry import component_ids, find_component\n"
        "assert 'acme' in component_ids('harness')\n"
        "assert 'acme_mod' not in sys.modules\n"
        "print(find_component('harness', 'acme').source)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "acme_mod:Acme"


@pytest.mark.parametrize(
    ("kind", "component_id", "package"),
    [("benchmark", "swebench_verified", "swebench"), ("harness", "mini_swe_agent", "mini-swe-agent")],
)
def test_wrapped_packages_are_part_of_a_components_version(
    kind: registry.Kind, component_id: str, package: str
) -> None:
    """Results of another version of the package are never continued."""
    assert find_component(kind, component_id).version == f"1+{package}-{version(package)}"


def test_absent_package_has_a_version_too() -> None:
    """Listing components must not fail for want of an extra."""

    class Wrapper:
        version = InstalledVersion("no-such-package", revision=3)

    assert Wrapper.version == "3+no-such-package-none"
