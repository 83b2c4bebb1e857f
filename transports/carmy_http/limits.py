"""Constants of reading from and writing to sockets, whatever front end serves them. Bounds that operators may set are in `HttpSettings`."""

from __future__ import annotations

LATE_SECONDS = 0.001
"""For reading bytes that have already arrived when a time limit expires."""

READ_BYTES = 64 * 1024
"""Of one read."""

WRITE_BYTES = 64 * 1024
"""Of one write. Each complete piece counts as progress."""
