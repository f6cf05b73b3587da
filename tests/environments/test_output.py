"""Keeping head and tail of a stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentcompass.environments.output import KeptOutput


@given(chunks=st.lists(st.binary(max_size=40), max_size=30), max_bytes=st.integers(0, 60))
def test_head_and_tail_are_kept_however_the_stream_is_cut(chunks: list[bytes], max_bytes: int) -> None:
    """The first and last half of the limit, nothing twice; all of it if it fits."""
    output = KeptOutput(max_bytes)
    for chunk in chunks:
        output.feed(chunk)
    whole = b"".join(chunks)
    head = max_bytes // 2
    tail = max_bytes - head
    cut = whole[:head] + whole[len(whole) - tail :]
    assert output.content == (whole if len(whole) <= max_bytes else cut)
    assert output.dropped_bytes == max(0, len(whole) - max_bytes)


def test_memory_is_bounded_while_a_stream_goes_on() -> None:
    """Never more than the limit and as much tail again."""
    output = KeptOutput(1000)
    held = 0
    for _ in range(1000):
        output.feed(b"x" * 700)
        held = max(held, len(output._head) + len(output._tail))
    assert held <= 1500
    assert output.dropped_bytes == 699_000
