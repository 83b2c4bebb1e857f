"""Texts for messages: bounded and encodable."""

from __future__ import annotations


def sendable_text(text: str) -> str:
    """The same text with ``?`` for lone surrogates, which file names may hold and UTF-8 cannot encode."""
    return text if text.isascii() else text.encode(errors="replace").decode()


MAX_MESSAGE_CHARS = 16_384
"""Length of an error message, about ten pages. People and models read a few lines; data belongs in the details."""


def bounded_text(text: object) -> str:
    """The text in a form that can be sent: at most `MAX_MESSAGE_CHARS` characters, no lone surrogates, no subclass of ``str``.

    Raises:
        TypeError: `text` is not a ``str``.
    """
    if not isinstance(text, str):
        raise TypeError(f"a text is needed, not {type(text).__name__}")
    text = str.__str__(text)  # markup, lazy translations: encoders refuse subclasses
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[: MAX_MESSAGE_CHARS - 1] + "…"
    return sendable_text(text)
