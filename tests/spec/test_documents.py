"""Files are read with the place of every item, so that each mistake is named with file, line and path."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcompass.errors import ConfigError
from agentcompass.spec.documents import read_document
from agentcompass.spec.located import find_origin


def write(folder: Path, text: str, name: str = "spec.yaml") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def problem(path: Path, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read_document(path, environ=environ)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("true", True),
        ("yes", "yes"),
        ("off", "off"),
        ("null", None),
        ("~", None),
        ("12", 12),
        ("007", "007"),
        ("1_000", "1_000"),
        ("10:30:00", "10:30:00"),
        ("1e-3", 0.001),
        ("0.5", 0.5),
        ("2026-01-31", "2026-01-31"),
        ("'5'", "5"),
        ("0x10", "0x10"),
    ],
)
def test_plain_values_follow_json(tmp_path: Path, written: str, value: object) -> None:
    """What looks like JSON is JSON; no other text turns into a number, a date or a boolean."""
    read = read_document(write(tmp_path, f"a: {written}\n"))["a"]
    assert read == value
    assert type(read) is type(value)


def test_items_know_their_lines(tmp_path: Path) -> None:
    """An item's origin is the line of its key, also inside of lists and flow mappings."""
    document = read_document(write(tmp_path, "a: 1\nb:\n  - {c: 2}\n  - d:\n      e: 3\n"))
    found = find_origin(document, ("b", 1, "d", "e"))
    assert found is not None
    origin, left = found
    assert (origin.line, origin.path, left) == (5, ("b", 1, "d", "e"), ())


def test_json_is_read_with_its_own_rules(tmp_path: Path) -> None:
    """A .json file may be indented with tabs and is held to JSON."""
    path = write(tmp_path, '{\n\t"a": [1,\n\t{"b": "\\u00e9"}]}\n', "spec.json")
    document = read_document(path)
    assert document == {"a": [1, {"b": "é"}]}
    assert "spec.json:1: not JSON" in problem(write(tmp_path, "{a: 1}", "spec.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\nb: 2\n", "spec.yaml:2: not YAML"),
        ("- 1\n", "spec.yaml:1: must hold a mapping, not list"),
        ("a: 1\nb: 2\na: 3\n", "spec.yaml:3: 'a' is there already, in line 1"),
        ("a: &x\n  b: *x\n", "contains itself"),
        ("? [1]\n: 2\n", "keys must be text"),
        ("a: !!python/object:os.system x\n", "not YAML"),
        ("extends: 3\n", "spec.yaml:1: extends: needs the path of a file"),
        ("extends: nowhere.yaml\n", "cannot read"),
    ],
)
def test_broken_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    """What cannot be read says where, and runs nothing."""
    assert message in problem(write(tmp_path, text))


def test_files_that_are_not_text_are_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are named, not guessed at; UTF-8 is read whatever the locale."""
    (tmp_path / "spec.yaml").write_bytes(b"a: \xff\n")
    assert "is not UTF-8" in problem(tmp_path / "spec.yaml")
    assert read_document(write(tmp_path, "a: 評価 — ok\n"))["a"] == "評価 — ok"


def test_variables_are_put_in(tmp_path: Path) -> None:
    """``${NAME}`` must be set, ``${NAME:-default}`` need not, and ``$${`` is literal."""
    text = "a: ${HOST}/v1\nb: ${PORT:-8000}\nc: $${HOST} $HOST\nd: ['${EMPTY:-x}', '${EMPTY}']\n"
    document = read_document(write(tmp_path, text), environ={"HOST": "h", "EMPTY": ""})
    assert document == {"a": "h/v1", "b": "8000", "c": "${HOST} $HOST", "d": ["x", ""]}


def test_missing_variables_are_named_with_their_places(tmp_path: Path) -> None:
    """All of a file at once, each with line, path and way out."""
    message = problem(write(tmp_path, "a: ${NO_A}\nb:\n  c: ${NO_B}\nd: ${bad name}\n"))
    assert "spec.yaml:1: a: the environment variable NO_A is not set" in message
    assert "spec.yaml:3: b.c: the environment variable NO_B is not set" in message
    assert "spec.yaml:4: d: '${bad name}' is not ${NAME}" in message


def test_file_lies_over_what_it_extends(tmp_path: Path) -> None:
    """Mappings merge, lists replace, and items keep the file that they come from."""
    write(tmp_path, "a: {b: 1, c: 2}\nl: [1, 2]\n", "base.yaml")
    document = read_document(write(tmp_path, "extends: base.yaml\na: {c: 3}\nl: [9]\n"))
    assert document == {"a": {"b": 1, "c": 3}, "l": [9]}
    found = find_origin(document, ("a", "b"))
    assert found is not None
    assert found[0].file.endswith("base.yaml")


def test_component_that_replaces_another_keeps_none_of_its_parameters(tmp_path: Path) -> None:
    """Parameters hold for one id only, whether the component is written out or not."""
    write(
        tmp_path,
        "e: {id: docker, image: x}\nf: {id: docker, image: x}\ng: {id: docker, image: x}\n",
        "b.yaml",
    )
    text = "extends: b.yaml\ne: {id: local}\nf: {id: docker, memory: 1}\ng: docker\n"
    document = read_document(write(tmp_path, text))
    assert document["e"] == {"id": "local"}
    assert document["f"] == {"id": "docker", "image": "x", "memory": 1}
    assert document["g"] == {"id": "docker", "image": "x"}


def test_circle_of_files_is_named(tmp_path: Path) -> None:
    """Files that extend each other end in one sentence, not in a hang."""
    write(tmp_path, "extends: spec.yaml\n", "base.yaml")
    assert "extends itself" in problem(write(tmp_path, "extends: base.yaml\n"))


def test_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    """YAML's own means of sharing work, as often as an anchor is used."""
    document = read_document(
        write(tmp_path, "x: &x {a: 1}\ny: &y {<<: *x, b: 2}\nz: [*y, *y, {<<: *y, a: 3}]\n")
    )
    assert document["z"] == [{"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 3, "b": 2}]
