"""Protocol errors, by the side that made the mistake."""

from __future__ import annotations

from carmy_engine.errors import AgentError, CarmyError


class LocalProtocolError(CarmyError):
    """This side broke the protocol. Nothing was sent."""


class RemoteProtocolError(CarmyError):
    """The peer broke the protocol.

    Attributes:
        error: The violation.
        reply: The bytes to send to the peer; None for a server, which takes no replies. The connection goes on.
    """

    def __init__(self, error: AgentError, reply: bytes | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.reply = reply
