"""Bytes as text, and text as lines."""

from __future__ import annotations

from collections.abc import Sequence

from carmy_engine import AgentError, ErrorCategory


def as_text(content: bytes, path: str) -> str:
    """Decode the content of a file.

    Raises:
        AgentError: ``NOT_TEXT``: it is not UTF-8, or contains zero bytes, as no text does.
    """
    try:
        if b"\0" not in content:
            return content.decode()
    except UnicodeDecodeError:
        pass
    raise AgentError("NOT_TEXT", f"{path!r} is not UTF-8 text", ErrorCategory.VALIDATION, recoverable=True)


def lines_of(text: str) -> list[str]:
    """Lines with their ends. Not `str.splitlines`: for that, form feeds and some others end a line as well."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def fitting(lines: Sequence[str], limit: int) -> list[str]:
    """The first lines, as many as have room in `limit` bytes. If that is none, the beginning of the first."""
    taken: list[str] = []
    room = limit
    for line in lines:
        room -= len(line.encode())
        if room < 0:
            break
        taken.append(line)
    if lines and not taken:  # one endless line: its beginning is better than nothing
        taken = [lines[0].encode()[:limit].decode(errors="ignore")]
    return taken
