"""Texts on their way out."""

from __future__ import annotations


def sendable_text(text: str) -> str:
    """The same text, with ``?`` for lone surrogates, which names of files may hold: no message could be sent with them."""
    return text if text.isascii() else text.encode(errors="replace").decode()
