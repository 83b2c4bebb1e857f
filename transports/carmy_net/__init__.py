"""Sockets, for servers and clients of every protocol.

- `Access`: the rules for ``Host``, ``Origin`` and credentials. `access_problems`, `network_problems`: settings that break them.
- `Listener`, `open_listeners`, `address_of`, `url_of`, `watch_link`: listening.
- `Server`: accepting connections and draining them.
- `SendQueue`: messages to a peer that may be slow. `EventReader`: server-sent events, for clients.
"""

from __future__ import annotations

from ._access import Access, Headers, every
from ._listening import Listener, address_of, network_problems, open_listeners, url_of, watch_link
from ._send_queue import LOG, MAX_OUTGOING_BYTES, Batches, Immediate, Message, Outgoing
from ._server import FLUSH_SECONDS, RESERVED_CONNECTIONS, Served, Server
from ._sse_reader import EventReader, ServerSentEvent

__all__ = [
    "FLUSH_SECONDS",
    "LOG",
    "MAX_OUTGOING_BYTES",
    "RESERVED_CONNECTIONS",
    "Access",
    "Batches",
    "EventReader",
    "Headers",
    "Immediate",
    "Listener",
    "Message",
    "Outgoing",
    "Served",
    "Server",
    "ServerSentEvent",
    "address_of",
    "every",
    "network_problems",
    "open_listeners",
    "url_of",
    "watch_link",
]
