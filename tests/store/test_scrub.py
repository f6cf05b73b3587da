from __future__ import annotations

import base64
import html
import json
import re
import subprocess
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentcompass.records import OutcomeClass
from agentcompass.store.encode import to_json
from agentcompass.store.scrub import Scrubber, _own_words

from .examples import CANARY, trial

_PLAIN = "sk-proj-4f9Kd02hBv8XwLmQz71RtY"
_SECRETS = [CANARY, _PLAIN, "p@ss/w0rd!=+&<x>", '"quoted"\\\\end\n', "\\\\server\\share1", "ключ-пароль-9x7q"]


def _wrapped(text: str, columns: int, newline: str) -> str:
    return newline.join(text[i : i + columns] for i in range(0, len(text), columns))


def _base64(secret: str, before: str) -> str:
    return base64.b64encode(f"{before}{secret}:tail".encode()).decode()


_FORMS: dict[str, Callable[[str], str]] = {
    "raw": lambda s: s,
    "json": lambda s: json.dumps(s, ensure_ascii=False)[1:-1],
    "json_ascii": lambda s: json.dumps(s)[1:-1],
    "json_ascii_upper": lambda s: re.sub(
        r"u[0-9a-f]{4}", lambda m: "u" + m[0][1:].upper(), json.dumps(s)[1:-1]
    ),
    "json_slashes": lambda s: json.dumps(s)[1:-1].replace("/", "\\/"),
    "json_in_json": lambda s: json.dumps(json.dumps(json.dumps({"k": s}))),
    "quote": quote,
    "quote_all": lambda s: quote(s, safe=""),
    "quote_lower": lambda s: re.sub(r"%..", lambda m: m[0].lower(), quote(s, safe="")),
    "quote_plus": quote_plus,
    "quote_twice": lambda s: quote(quote(s)),
    "html": html.escape,
    "hex": lambda s: s.encode().hex(),
    "base64_0": lambda s: _base64(s, ""),
    "base64_1": lambda s: _base64(s, "u"),
    "base64_2": lambda s: _base64(s, "us"),
    "base64_url": lambda s: _base64(s, "").translate(str.maketrans("+/", "-_")),
    "base64_quoted": lambda s: quote(_base64(s, "ab"), safe=""),
    "repr": lambda s: repr(s)[1:-1],
    "message": lambda s: (
        f"401 for https://user:{quote(s)}@host/?key={quote_plus(s)} (Authorization: Bearer {s})"
    ),
}


def _leaks(secret: str, data: bytes) -> bool:
    """Whether the end of a secret can be read off the data, in the plain forms."""
    tail = secret[-8:]
    forms = (tail, quote_plus(tail), _FORMS["json"](tail), _FORMS["json_ascii"](tail))
    return any(form.encode() in data for form in forms)


@pytest.mark.parametrize("secret", _SECRETS)
@pytest.mark.parametrize("form", _FORMS)
def test_a_secret_is_found_however_it_is_written(form: str, secret: str) -> None:
    """Whatever encoder a secret went through, its place holds the placeholder."""
    text = f"before {_FORMS[form](secret)} after"
    clean = Scrubber([secret]).scrub_text(text)

    assert "[secret]" in clean
    assert not _leaks(secret, clean.encode())
    assert clean.startswith(("before ", 'before "'))
    assert clean.endswith(" after")


@pytest.mark.parametrize("secret", _SECRETS)
@pytest.mark.parametrize("form", _FORMS)
def test_json_stays_valid_and_keeps_the_rest(form: str, secret: str) -> None:
    """Inside a document, the secret goes and every other value stays exactly as it was."""
    document = {"text": f"a {_FORMS[form](secret)} b", secret: 1, "n": [1.5, None, True, '\u2028\\"']}
    clean = Scrubber([secret]).scrub_json(msgspec.json.encode(document))

    decoded = msgspec.json.decode(clean)
    assert "[secret]" in decoded["text"]
    assert not _leaks(secret, clean)
    assert decoded["n"] == document["n"]


@pytest.mark.parametrize("columns", [64, 76])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("shift", range(0, 80, 7))
def test_a_secret_in_wrapped_base64_is_found(shift: int, newline: str, columns: int) -> None:
    """``env | base64`` breaks lines anywhere; no break hides the secret."""
    dump = _wrapped(_base64(_PLAIN, "A" * shift), columns, newline)
    clean = Scrubber([_PLAIN]).scrub_json(msgspec.json.encode({"stdout": dump}))

    left = re.sub(r"\s", "", msgspec.json.decode(clean)["stdout"])
    codes = [base64.b64encode(b"x" * n + _PLAIN.encode()).decode() for n in range(3)]
    assert "[secret]" in left
    assert not any(code[at : at + 8] in left for code in codes for at in range(4, len(code) - 12))


def test_output_of_the_real_base64_command_is_cleaned() -> None:
    """What an agent's shell really prints is covered."""
    secret = _PLAIN * 5
    dump = subprocess.run(
        ["base64"], input=f"KEY={secret}\n".encode(), capture_output=True, check=True
    ).stdout
    assert dump.count(b"\n") > 2
    assert len(Scrubber([secret]).scrub_bytes(dump)) < 40


@pytest.mark.slow
@given(
    secret=st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=40),
    around=st.tuples(st.text(max_size=20), st.text(max_size=20)),
)
def test_no_secret_survives_in_any_document(secret: str, around: tuple[str, str]) -> None:
    """Any secret that is no word of the format is removed from between any two texts."""
    assume(secret not in _own_words())
    before, after = (text.encode("utf-8", "replace").decode() for text in around)
    document = msgspec.json.encode({"k": f"{before}{secret}{after}"})
    decoded = msgspec.json.decode(Scrubber([secret]).scrub_json(document))
    if secret not in "[secret]" and "[secret]" not in secret:
        assert secret not in decoded["k"].replace("[secret]", "\0")


def test_an_escape_in_front_of_a_secret_does_not_break_the_document() -> None:
    """A newline before a secret ends in ``n``: a secret that begins with n must not swallow half of it."""
    document = json.dumps({"k": "line\nabcdef"}).encode()
    assert json.loads(Scrubber(["nabcdef"]).scrub_json(document)) == {"k": "line\nabcdef"}
    assert json.loads(Scrubber(["nabcdef"]).scrub_bytes(document)) == {"k": "line[secret]"}


def test_words_of_the_format_survive_a_secret_that_equals_them() -> None:
    """A silly key such as ``completed`` costs no record its meaning."""
    record = trial("completed-1")
    data = Scrubber(["completed", "task_id", "metrics"]).scrub_json(to_json(record), keep={"completed-1"})
    assert msgspec.json.decode(data, type=type(record)) == record
    assert record.outcome is OutcomeClass.COMPLETED


def test_the_longer_of_two_overlapping_secrets_goes_as_a_whole() -> None:
    """A key that begins with another key leaves no rest behind."""
    assert Scrubber(["abcdef", "abcdef-123456"]).scrub_text("x abcdef-123456 abcdef") == "x [secret] [secret]"


@pytest.mark.parametrize("secrets", [[], ["", "EMPTY", "short"]])
def test_without_a_real_secret_data_passes_untouched(secrets: list[str]) -> None:
    """Nothing is copied or searched; placeholders such as ``EMPTY`` are no secrets."""
    data = b'{"key": "EMPTY short"}'
    assert Scrubber(secrets).scrub_json(data) is data
    assert Scrubber(secrets).scrub_bytes(data) is data


def test_clean_data_passes_untouched() -> None:
    """Without a match the very same object comes back."""
    data = b'{"key": "nothing to see"}'
    assert Scrubber([CANARY]).scrub_json(data) is data


def test_bytes_that_are_no_json_are_still_cleaned() -> None:
    """A torn or binary log line is treated as bytes."""
    assert Scrubber([_PLAIN]).scrub_json(b"\xff{" + _PLAIN.encode()) == b"\xff{[secret]"


@pytest.mark.slow
def test_hostile_text_does_not_slow_the_search_down() -> None:
    """Long runs of backslashes or of almost-secrets take time in proportion to their length."""
    scrubber = Scrubber(['\\\\\\"abcdef"'])
    hostile = b"\\" * 500_000 + b"abcdef" * 50_000
    assert scrubber.scrub_bytes(hostile) == hostile
