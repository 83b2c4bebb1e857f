"""The header ``Date``."""

from __future__ import annotations

import email.utils
import time

_last = (0, b"")


def http_date() -> bytes:
    """The value of ``Date``, made once a second."""
    global _last  # noqa: PLW0603 - a cache of one entry
    now = int(time.time())
    if _last[0] != now:
        _last = (now, email.utils.formatdate(now, usegmt=True).encode())
    return _last[1]
