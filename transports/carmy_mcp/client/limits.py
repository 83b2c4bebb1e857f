"""Limits of the client in time, bytes and numbers."""

from __future__ import annotations

import msgspec


class McpClientLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of `open_mcp`.

    Attributes:
        ready_secs: For a server to start, to agree on a version, and to list its tools.
        connect_secs: For a connection. A running server accepts it at once.
        write_secs: Without progress in sending a request.
        catalog_secs: For a listing, all of its pages.
        notice_secs: For a message that is no call, and for the end of a session: the next call waits for the former.
        margin_secs: Beyond a call's limit, before the silence of a server that applies limits counts as a loss: tools clean up meanwhile.
        resume_secs: Before each continuation of a stream.
        max_resumed: Continuations of one stream that has ended before its answer.
        max_pages: Of one listing. A server that always has another one would never be done.
        max_answer_bytes: Of one message of a server. The largest outputs that tools are allowed by default have an eighth of it.
    """

    ready_secs: float = 30.0
    connect_secs: float = 10.0
    write_secs: float = 30.0
    catalog_secs: float = 30.0
    notice_secs: float = 10.0
    margin_secs: float = 10.0
    resume_secs: float = 1.0
    max_resumed: int = 2
    max_pages: int = 1000
    max_answer_bytes: int = 64 * 1024 * 1024


DEFAULT_LIMITS = McpClientLimits()
