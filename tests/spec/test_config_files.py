"""Defaults come from files that somebody named, and from no other place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcompass.errors import ConfigError
from agentcompass.spec.config_files import as_document, config_paths, read_config, with_arguments
from agentcompass.spec.orchestration import OrchestrationSpec


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def test_most_explicit_file_holds_alone(tmp_path: Path) -> None:
    """Named in the call, else by the variable, else the user's own."""
    own = write(tmp_path / ".config" / "agentcompass" / "config.yaml", "k: 1\n")
    named, variable = write(tmp_path / "n.yaml", "k: 2\n"), write(tmp_path / "v.yaml", "k: 3\n")
    environ = {"HOME": str(tmp_path)}
    assert config_paths([], environ=environ) == ([own], False)
    environ["AGENTCOMPASS_CONFIG"] = str(variable)
    assert config_paths([], environ=environ) == ([variable], False)
    assert config_paths([named], environ=environ) == ([named], True)
    environ["AGENTCOMPASS_CONFIG"] = ""
    assert config_paths([], environ=environ) == ([], False)


def test_nothing_is_picked_up_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with a file of the usual names in it changes nothing."""
    for name in ("agentcompass.yaml", "config.yaml", ".agentcompass.yaml"):
        write(tmp_path / name, "k: 5\n")
    monkeypatch.chdir(tmp_path)
    assert read_config(environ={"HOME": str(tmp_path / "home")}) == {}


@pytest.mark.parametrize("option", ["plugins: [p.py]", "recipe_dirs: [r]", "auto_install_dependencies: true"])
def test_no_implicit_file_loads_code(tmp_path: Path, option: str) -> None:
    """What brings code into the process must be in a file that the call names."""
    path = write(tmp_path / "c.yaml", f"{option}\n")
    with pytest.raises(ConfigError, match=r"c.yaml:1: \w+: loads code"):
        read_config(environ={"AGENTCOMPASS_CONFIG": str(path)})
    assert read_config([path], environ={}) != {}


def test_every_mistake_of_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    """Unknown names and wrong values, all at once."""
    path = write(tmp_path / "c.yaml", "limitt: 3\nk: 0\nconfig: x.yaml\n")
    with pytest.raises(ConfigError) as caught:
        read_config([path], environ={})
    lines = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
    assert lines == [
        "c.yaml:3: config: a file names those below it with extends",
        "c.yaml:2: k: input should be greater than 0, got 0",
        "c.yaml:1: limitt: no such option; did you mean 'limit'?",
    ]


def test_later_files_lie_over_earlier_ones(tmp_path: Path) -> None:
    """Mappings merge; parameters of a component that is replaced go with it."""
    first = write(
        tmp_path / "a.yaml", "harness: chat\nharness_params: {system: x}\nprovider_limits: {docker: 2}\n"
    )
    second = write(tmp_path / "b.yaml", "harness: oracle\nprovider_limits: {local: 3}\n")
    values = read_config([first, second], environ={})
    assert values == {"harness": "oracle", "provider_limits": {"docker": 2, "local": 3}}


def test_arguments_of_another_component_drop_its_parameters() -> None:
    """The endpoint of one model is not that of another."""
    below = {"model": "m1", "model_base_url": "u1", "harness_params": {"a": 1}}
    assert with_arguments(below, {"model": "m2"}) == {"model": "m2", "harness_params": {"a": 1}}
    assert with_arguments(below, {"model": "m1"}) == below


def test_configuration_lies_under_the_defaults_of_an_orchestration(tmp_path: Path) -> None:
    """Flat arguments serve every request: built-in < files < defaults < request."""
    text = "environment: docker\nenvironment_params: {image: x}\nk: 2\nlimit: 7\ntask_concurrency: 9\n"
    flat = read_config([write(tmp_path / "c.yaml", text + "provider_limits: {docker: 4}\n")], environ={})
    document = {
        "defaults": {"execution": {"k": 3}},
        "requests": [{"name": "a", "benchmark": "b", "harness": "h"}],
    }
    spec = OrchestrationSpec.configured(document, as_document(flat))
    [request] = spec.requests
    assert (request.execution.k, request.execution.limit) == (3, 7)
    assert (request.environment.id, request.environment.params) == ("docker", {"image": "x"})
    assert (spec.task_concurrency, spec.runtime.provider_limits) == (9, {"docker": 4})


def test_paths_in_the_variable_are_a_list(tmp_path: Path) -> None:
    """Several files are separated as in PATH."""
    paths = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    environ = {"AGENTCOMPASS_CONFIG": os.pathsep.join(map(str, paths))}
    assert config_paths([], environ=environ)[0] == paths
