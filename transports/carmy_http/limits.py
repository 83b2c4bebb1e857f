"""Limits of HTTP connections in time and bytes, whatever front end serves them."""

from __future__ import annotations

KEEP_ALIVE_SECONDS = 75.0
"""Idle time between two requests; longer than common proxies keep a connection, so that the proxy closes it first."""

LAST_REQUEST_SECONDS = 0.1
"""For a request that is on its way when the server begins to drain. It keeps the connections of busy clients from being cut off."""

LATE_SECONDS = 0.001
"""For reading bytes that have already arrived when a time limit expires."""

WRITE_SECONDS = 10.0
"""Without progress. A client that takes nothing for so long counts as gone."""

LINGER_SECONDS = 2.0
"""For reading after the last answer: closing a socket with unread bytes resets the connection, and the answer would be lost."""

MAX_LINGER_BYTES = 8 * 1024 * 1024
"""Discarded after the last answer. The connection of a client that sends more is reset."""

MAX_PIPELINED_BYTES = 64 * 1024
"""Of pipelined requests behind the one that is being answered. A client that sends more is disconnected."""

MAX_UNREAD_BYTES = 256 * 1024
"""Of a body that the application has not read yet. Beyond it, reading pauses (back-pressure)."""

READ_BYTES = 64 * 1024
"""Of one read."""

WRITE_BYTES = 64 * 1024
"""Of one write. Each complete piece counts as progress."""
