"""Whose fault it was: blame has a direction."""

from __future__ import annotations

from carmy_engine.errors import AgentError, CarmyError


class LocalProtocolError(CarmyError):
    """This side did what the protocol does not allow. Nothing was sent."""


class RemoteProtocolError(CarmyError):
    """The peer did what the protocol does not allow.

    Attributes:
        error: What it did wrong.
        reply: The bytes to send it; None for a server, which takes no replies. The connection goes on.
    """

    def __init__(self, error: AgentError, reply: bytes | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.reply = reply
