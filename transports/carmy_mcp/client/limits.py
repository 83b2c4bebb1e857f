"""Limits of the client in time, bytes and numbers."""

from __future__ import annotations

import msgspec


class McpClientLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of `open_mcp`.

    Attributes:
        ready_secs: For a server to start, to agree on a version, and to list its tools.
        probe_secs: For the answer to the first question, which versions there are. A few servers of old versions ignore it.
        connect_secs: For a connection. A running server accepts it at once.
        write_secs: Without progress in sending a request.
        catalog_secs: For a listing, all of its pages.
        notice_secs: For a message that is no call, and for the end of a session: the next call waits for the former.
        margin_secs: Beyond a call's limit, before the silence of a server that applies limits counts as a loss: tools clean up meanwhile.
        resume_secs: Before each continuation of a stream, unless the server has set a time.
        max_resumed: Failed attempts in a row to resume a stream that has ended before its answer.
        restart_secs: Before the second start of a command that has ended; doubled with each further one. The first is at once.
        max_restart_secs: The longest of these times.
        stable_secs: After which a command that has ended counts as one that had worked: the next start is at once again.
        max_rounds: Requests for one call, each with the answers that the server has asked for in the one before.
        max_pages: Of one listing. A server that always has another one would never be done.
        max_listed: Entries of one listing, all of its pages.
        max_answer_bytes: Of one message of a server. The largest outputs that tools are allowed by default have an eighth of it.
    """

    ready_secs: float = 30.0
    probe_secs: float = 5.0
    connect_secs: float = 10.0
    write_secs: float = 30.0
    catalog_secs: float = 30.0
    notice_secs: float = 10.0
    margin_secs: float = 10.0
    resume_secs: float = 1.0
    max_resumed: int = 2
    restart_secs: float = 1.0
    max_restart_secs: float = 30.0
    stable_secs: float = 10.0
    max_rounds: int = 100
    max_pages: int = 1000
    max_listed: int = 10_000
    max_answer_bytes: int = 64 * 1024 * 1024


DEFAULT_LIMITS = McpClientLimits()
