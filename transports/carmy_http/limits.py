"""Limits of HTTP connections in time and bytes, whatever front end serves them."""

from __future__ import annotations

KEEP_ALIVE_SECONDS = 75.0
"""Idle time between two requests; longer than common proxies keep a connection, so that they close it and not we."""

LAST_REQUEST_SECONDS = 0.1
"""For a request that is on its way when the server begins to go away. Clients that ask without a pause would else all be cut off."""

LATE_SECONDS = 0.001
"""For taking what has come, once a time limit is over. Nothing is waited for."""

WRITE_SECONDS = 10.0
"""Without progress. A client that takes nothing for so long is gone, or might as well be."""

LINGER_SECONDS = 2.0
"""For reading on after the last answer: closing with unread bytes would reset the connection and lose the answer."""

MAX_LINGER_BYTES = 8 * 1024 * 1024
"""Discarded after the last answer. A client that still sends after so much gets its reset."""

MAX_PIPELINED_BYTES = 64 * 1024
"""Sent behind a request that is still being answered. More is not pipelining but a flood."""

MAX_UNREAD_BYTES = 256 * 1024
"""Of a body that the application has not taken yet; the client has to wait beyond it."""

READ_BYTES = 64 * 1024
"""Read at once."""

WRITE_BYTES = 64 * 1024
"""Written at once. Any of these pieces that leaves is progress."""
