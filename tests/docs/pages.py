"""What is in a page: blocks of code and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]

_FENCE = re.compile(r"^(?P<fence>```+)(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=fence)[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]*\]\(<?(?P<target>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*$", re.MULTILINE)
_COMMENT = re.compile(r"<!--(?P<text>(?:(?!-->).)*)-->\s*\Z", re.DOTALL)


class Block(NamedTuple):
    """A fenced block: its kind, its text, the number of its first line from 0, and the comment right before it."""

    info: str
    text: str
    line: int
    comment: str


def name_of(page: Path) -> str:
    """For the ids of tests."""
    return page.relative_to(REPOSITORY).as_posix()


def blocks_of(page: Path) -> Iterator[Block]:
    """All fenced blocks, in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        comment = _COMMENT.search(text[: found.start()])
        line = text.count("\n", 0, found.start("text"))
        yield Block(found["info"].strip(), found["text"], line, "" if comment is None else comment["text"].strip())


def links_of(page: Path) -> list[str]:
    """The targets of all links."""
    return [found["target"] for found in _LINK.finditer(_FENCE.sub("", page.read_text(encoding="utf-8")))]


def anchors_of(page: Path) -> set[str]:
    """What can follow ``#`` in a link to the page."""
    without_code = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {_slug(found["text"]) for found in _HEADING.finditer(without_code)}


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
