"""``key=value`` on the command line: how it is split, nested and typed."""

from __future__ import annotations

import pytest

from agentcompass.cli.key_values import read_key_values
from agentcompass.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k=a=b=", {"k": "a=b="}),
        ("k=", {"k": ""}),
        ("a.b.c=1", {"a": {"b": {"c": 1}}}),
        ("k=true", {"k": True}),
        ("k=True", {"k": "True"}),
        ("k=null", {"k": None}),
        ("k=007", {"k": "007"}),
        ('k="1"', {"k": "1"}),
        ("k=1.5", {"k": 1.5}),
        ("k=12345678901234567890123", {"k": 12345678901234567890123}),
        ("k=NaN", {"k": "NaN"}),
        ("k=1e400", {"k": "1e400"}),
        ('k=["x", 1]', {"k": ["x", 1]}),
        ("k=[broken", {"k": "[broken"}),
        ("k=日本—", {"k": "日本—"}),
        ("k=" + "[" * 50_000, {"k": "[" * 50_000}),
        ('{"a.b": 1, "c": "x=y"}', {"a.b": 1, "c": "x=y"}),
    ],
)
def test_text_becomes_a_typed_value(text: str, expected: object) -> None:
    """The first "=" splits, dots nest, JSON is JSON and everything else is text."""
    assert read_key_values([text], option="--x") == expected


@pytest.mark.parametrize("text", ["", "k", "=v", ".a=1", "a..b=1", "a.=1", "{broken", '{"a": 1} 2'])
def test_what_is_no_assignment_is_refused(text: str) -> None:
    """The message names the option and shows the text."""
    with pytest.raises(ConfigError, match=r"^--x: ") as caught:
        read_key_values([text], option="--x")
    assert repr(text) in str(caught.value)


def test_repeated_options_merge() -> None:
    """Mappings merge, of other values the last one holds."""
    texts = ["a.b=1", "a.c=2", '{"a": {"b": 3}, "d": 4}', "d=5", "e=1", "e.f=2"]
    assert read_key_values(texts, option="--x") == {"a": {"b": 3, "c": 2}, "d": 5, "e": {"f": 2}}
