"""When a reply is one of the accepted answers."""

from __future__ import annotations

import time

import pytest

from agentcompass.benchmarks.matching import chosen_letter, final_answer, matches_exactly, matches_number

FINAL = [
    ("Paris", "Paris"),
    ("I think so.\n\nParis\n", "Paris"),
    ("Answer: Lyon\nNo.\n**Answer:** Paris\nBye", "Paris"),
    ("The final answer is Paris", "Paris"),
    ("Answer:\n\nParis", "Paris"),
    ("so \\boxed{1} or \\boxed{\\frac{1}{2}} ok", "\\frac{1}{2}"),
    ("\\boxed{unbalanced", "\\boxed{unbalanced"),
    ("", ""),
]


@pytest.mark.parametrize(("reply", "answer"), FINAL)
def test_final_answer_is_boxed_stated_or_last(reply: str, answer: str) -> None:
    """The last box wins over the last statement, which wins over the last line."""
    assert final_answer(reply) == answer


@pytest.mark.parametrize(
    ("reply", "accepted", "right"),
    [
        ("  the\n eiffel  tower. ", "The Eiffel Tower", True),
        ("Answer: **Paris**.", "Paris", True),
        ("Paris is nice", "Paris", False),
        ("not Paris", "Paris", False),
        ("a\nb", "a\nb", True),
        ("U.S.", "U.S.", True),
        ("STRASSE", "straße", True),
        ("\ud800", "x", False),
        ("", "x", False),
    ],
)
def test_exact_match_ignores_only_spacing_case_and_emphasis(reply: str, accepted: str, right: bool) -> None:
    """Anything more or less than the accepted text is wrong."""
    assert matches_exactly(reply, ["other", accepted]) is right


def test_case_can_count() -> None:
    """With ``ignore_case`` off, case differs."""
    assert not matches_exactly("paris", ["Paris"], ignore_case=False)


NUMBERS = [
    ("I get 41, no, 42.", "42", True),
    ("#### 1,234,567.50", "1234567.5", True),
    ("$1,000", "1000", True),
    ("-3", "-3", True),
    ("−3", "-3", True),
    ("3-4", "4", True),
    ("between 3 and -4", "4", False),
    (".5", "0.5", True),
    ("6.02e23", "602000000000000000000000", True),
    ("1e-3", "0.001", True),
    ("3/4", "0.75", True),
    ("\\boxed{\\frac{3}{4}} or 9", "0.75", True),
    ("-\\dfrac{1}{2}", "-0.5", True),
    ("50%", "50", True),
    ("50%", "0.5", True),
    ("0.5", "50%", True),
    ("50\\%", "50", True),
    ("Answer: 42\nI checked it 3 times", "42", True),
    ("The answer is 42.\n\nHope this helps!", "42", True),
    ("12345678901234567891", "12345678901234567890", False),
    ("0.33", "1/3", False),
    ("nan", "42", False),
    ("inf", "42", False),
    ("1/0", "42", False),
    ("1e999", "42", False),
    ("1e99999999999", "42", False),
    ("H2O", "2", False),
    ("none", "42", False),
    ("", "0", False),
    ("5 kg", "5", True),
    ("5kg", "5", True),
]


@pytest.mark.parametrize(("reply", "accepted", "right"), NUMBERS)
def test_last_number_is_compared(reply: str, accepted: str, right: bool) -> None:
    """Numbers in usual notations compare by value; what is no finite number matches nothing."""
    assert matches_number(reply, [accepted], tolerance=1e-6) is right


def test_tolerance_is_how_far_a_number_may_be_off() -> None:
    """The margin is absolute and inclusive."""
    assert matches_number("0.33", ["1/3"], tolerance=0.01)
    assert not matches_number("0.33", ["1/3"], tolerance=0.001)


LETTERS = [
    ("C", "C"),
    ("c", "C"),
    ("C.", "C"),
    ("(C)", "C"),
    ("**C**", "C"),
    ("C) Paris", "C"),
    ("Because.\n\nC", "C"),
    ("**Answer: C**", "C"),
    ("Answer: **C**", "C"),
    ("answer is C because B is wrong", "C"),
    ("The correct answer is (c).", "C"),
    ("The answer is option C", "C"),
    ("Final answer:\nC", "C"),
    ("$\\boxed{C}$", "C"),
    ("\\boxed{\\text{C}}", "C"),
    ("Answer: A. Wait, no. Answer: C", "C"),
    ("Answer: A\n\\boxed{C}", "C"),
    ("\\boxed{A} hmm, the answer is C", "C"),
    ("I would go for (C) here", "C"),
    ("Paris", "C"),
    ("It is\nParis.", "C"),
    ("The answer is a city in France", None),
    ("The answer is not C", None),
    ("A city", None),
    ("Answer: Z", None),
    ("I cannot judge", None),
    ("", None),
]


@pytest.mark.parametrize(("reply", "letter"), LETTERS)
def test_last_explicit_verdict_is_the_choice(reply: str, letter: str | None) -> None:
    """Lenient in form, exact in substance: without a recognisable verdict there is none."""
    assert chosen_letter(reply, ["Rome", "Bonn", "Paris", "Oslo"], letters="ABCD") == letter


PIECES = [
    "1",
    "1,",
    "1,234",
    "1/",
    ".",
    "answer",
    "answer ",
    "answer:",
    "\\boxed{",
    "{",
    "}",
    " ",
    "\n",
    "(",
    "(A)",
    "-$",
]


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES)
def test_hostile_reply_takes_no_time(piece: str) -> None:
    """A million characters, the most that is ever compared, are read in well under a second."""
    text = piece * (1_000_000 // len(piece))
    started = time.process_time()
    matches_exactly(text, ["x"])
    matches_number(text, ["1"], tolerance=0)
    chosen_letter(text, ["x", "y"], letters="AB")
    assert time.process_time() - started < 2.5
