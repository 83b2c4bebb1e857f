"""The head of a POST, as far as it concerns the message in its body."""

from __future__ import annotations

from typing import NamedTuple

from carmy_engine.codec import invalid_request
from carmy_http.api.content_negotiation import accepts, content_type_problem
from carmy_http.message import RequestHead, Response

from ..protocol.headers import SESSION_ID, VERSION, RoutingHeaders
from ..protocol.versions import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from .refusals import refuse


class PostHead(NamedTuple):
    """What the head of a POST states about its message.

    Attributes:
        problem: The refusal, whatever the message is; None if there is none.
        version: The version of the protocol; None if it is not stated.
        is_modern: The version has no ``initialize``.
        is_unknown: The version is not supported.
        session_id: The session; None if there is none.
        routing: The headers that repeat parts of the message.
    """

    problem: Response | None
    version: str | None
    is_modern: bool
    is_unknown: bool
    session_id: str | None
    routing: RoutingHeaders

    @classmethod
    def of(cls, head: RequestHead) -> PostHead:
        """Read a head."""
        problem: Response | None = None
        content_type = content_type_problem(head.first(b"content-type"))
        accept = head.every(b"accept")
        if content_type is not None:
            problem = refuse(400, invalid_request(content_type))
        elif not (accepts(accept, "application/json") and accepts(accept, "text/event-stream")):
            wanted = "the header Accept must name application/json and text/event-stream"
            problem = refuse(406, invalid_request(wanted))
        version = header_text(head.first(VERSION))
        return cls(
            problem=problem,
            version=version,
            is_modern=version in MODERN_VERSIONS,
            is_unknown=version is not None and version not in (*HANDSHAKE_VERSIONS, *MODERN_VERSIONS),
            session_id=header_text(head.first(SESSION_ID)),
            routing=RoutingHeaders.of(head.headers),
        )


def header_text(value: bytes | None) -> str | None:
    """The text of a header; None where it is missing."""
    return None if value is None else value.decode("latin-1")
