"""Texts on their way out."""

from __future__ import annotations


def sendable_text(text: str) -> str:
    """The same text, with ``?`` for lone surrogates, which names of files may hold: no message could be sent with them."""
    return text if text.isascii() else text.encode(errors="replace").decode()


MAX_MESSAGE_CHARS = 16_384
"""Of a message in an error. People and models read a few lines; beyond ten pages there is data in it that belongs elsewhere."""


def bounded_text(text: object) -> str:
    """The same text, fit to be sent: at most `MAX_MESSAGE_CHARS` characters, no lone surrogates, no subclass of ``str``.

    Raises:
        TypeError: `text` is not a ``str``.
    """
    if not isinstance(text, str):
        raise TypeError(f"a text is needed, not {type(text).__name__}")
    text = str.__str__(text)  # markup, lazy translations: no encoder takes a subclass
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[: MAX_MESSAGE_CHARS - 1] + "…"
    return sendable_text(text)
