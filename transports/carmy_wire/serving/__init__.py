"""What servers on sockets share, whatever they speak.

- `Access`: who may talk to us at all: ``Host``, ``Origin``, credentials.
- `network_problems`: the settings that servers would refuse.
- `Listener`, `open_listeners`, `address_of`, `url_of`, `watch_link`: listening.
- `Server`: accepting and draining.
"""

from __future__ import annotations

from ._access import Access, Headers, every
from ._listening import Listener, address_of, network_problems, open_listeners, url_of, watch_link
from ._server import FLUSH_SECONDS, RESERVED_CONNECTIONS, Served, Server

__all__ = [
    "FLUSH_SECONDS",
    "RESERVED_CONNECTIONS",
    "Access",
    "Headers",
    "Listener",
    "Served",
    "Server",
    "address_of",
    "every",
    "network_problems",
    "open_listeners",
    "url_of",
    "watch_link",
]
