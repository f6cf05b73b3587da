"""
Find what an answer says: without its reasoning, and the code in it.

Answers are hostile input on the event loop: everything here takes linear time, and of a longer text only the
last million characters count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_ANSWER_CHARACTERS = 1_000_000

_FENCE = r"(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})(?=(?P<info>[^\n]*))"
_TAG = r"(?<!(?<!``)`)<(?P<close>/?)think(?:ing)?>"
_FENCES = re.compile(f"^{_FENCE}", re.M)
_FENCES_AND_TAGS = re.compile(f"{_TAG}|(?:^|(?<=think>)|(?<=thinking>)){_FENCE}", re.M | re.I)
_CODE_LINE = re.compile(r"@|(?:def|async|class|import|from)\b")


def strip_reasoning(text: str) -> str:
    """
    Return the final answer: the text without ``<think>`` (or ``<thinking>``) blocks.

    A closing tag without an opening one ends reasoning that began before the text, so everything before it
    goes. Reasoning that never closes means that the answer was cut off: the result is empty. Tags inside a
    fenced code block of the answer, or right after a backtick, belong to the answer.
    """
    text = text[-MAX_ANSWER_CHARACTERS:]
    kept: list[str] = []
    position = 0
    thinking = False
    fence: re.Match[str] | None = None
    for mark in _FENCES_AND_TAGS.finditer(text):
        if mark["fence"]:
            fence = None if thinking else _fence_after(fence, mark)
        elif fence is None and mark["close"]:
            if not thinking:
                kept.clear()
            thinking, position = False, mark.end()
        elif fence is None and not thinking:
            kept.append(text[position : mark.start()])
            thinking = True
    return "" if thinking else "".join([*kept, text[position:]])


def is_cut_off(text: str) -> bool:
    """Tell whether a text holds reasoning but no answer after it."""
    return bool(text.strip()) and not strip_reasoning(text).strip()


def extract_code(text: str, entry_point: str) -> str:
    r"""
    Return the code in a text: the last fenced block that defines the entry point, else the last block.

    A block that never closes reaches to the end; a text without blocks is code as a whole. Line ends become
    ``\n``; indentation is kept, less that of the fence.
    """
    text = text[-MAX_ANSWER_CHARACTERS:].replace("\r\n", "\n")
    blocks = list(_fenced_blocks(text))
    if not blocks:
        return text
    return next((block for block in reversed(blocks) if defines(block, entry_point)), blocks[-1])


def defines(code: str, name: str) -> bool:
    """Tell whether a line of the code defines the name as a function, class or variable."""
    name = re.escape(name)
    pattern = rf"^[ \t]*(?:(?:async[ \t]+)?def[ \t]+{name}\b|class[ \t]+{name}\b|{name}[ \t]*[:=](?!=))"
    return re.search(pattern, code, re.M) is not None


def without_prose(code: str) -> str:
    """Drop what stands before the first line that looks like code, and after the last indented line."""
    lines = code.split("\n")
    first = next((index for index, line in enumerate(lines) if _CODE_LINE.match(line)), 0)
    indented = (index for index in reversed(range(len(lines))) if lines[index][:1] in {" ", "\t"})
    last = next((index for index in indented if lines[index].strip()), len(lines) - 1)
    return "\n".join(lines[first : max(first, last) + 1])


def _fenced_blocks(text: str) -> Iterator[str]:
    opening: re.Match[str] | None = None
    for fence in _FENCES.finditer(text):
        following = _fence_after(opening, fence)
        if opening is not None and following is None:
            yield _block(text, opening, fence.start())
        opening = following
    if opening is not None:
        yield _block(text, opening, len(text))


def _fence_after(opening: re.Match[str] | None, fence: re.Match[str]) -> re.Match[str] | None:
    """Return the fence whose block is open after this one."""
    if opening is None:
        return None if "`" in fence["info"] else fence
    longer = fence["fence"].startswith(opening["fence"])
    alone = not fence["info"].strip() or fence["info"].startswith("</think")
    indented = len(fence["indent"]) > len(opening["indent"]) + 3
    return None if longer and alone and not indented else opening


def _block(text: str, opening: re.Match[str], end: int) -> str:
    start = min(opening.end() + len(opening["info"]) + 1, end)
    block, indent = text[start:end], opening["indent"]
    if not indent:
        return block
    return "".join(line.removeprefix(indent) for line in block.splitlines(keepends=True))
