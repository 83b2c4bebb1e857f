"""The error for a refused message."""

from __future__ import annotations

NOT_HTTP = "the message is not valid HTTP/1.1"


class FramingError(Exception):
    """A message that is refused; the connection closes after the answer.

    Attributes:
        status: Of the answer.
        reason: For the message in the answer's body.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
