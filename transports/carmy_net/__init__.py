"""Sockets, for servers and clients of header_values protocol.

- `Access`: the rules for ``Host``, ``Origin`` and credentials. `access_problems`, `network_problems`: settings that break them.
- `Listener`, `open_listeners`, `listener_address`, `listener_url`, `enable_keepalive`: listening.
- `Server`: accepting connections and draining them.
- `SendQueue`: messages to a peer that may be slow. `EventReader`: server-sent events, for clients.
"""

from __future__ import annotations

from ._access import Access, Headers, header_values
from ._listening import Listener, enable_keepalive, listener_address, listener_url, network_problems, open_listeners
from ._send_queue import DEFAULT_LOGGER, MAX_QUEUED_BYTES, Batches, Immediate, QueuedMessage, SendQueue
from ._server import FLUSH_SECONDS, RESERVED_CONNECTIONS, ServedConnection, Server
from ._sse_reader import EventReader, ServerSentEvent

__all__ = [
    "DEFAULT_LOGGER",
    "FLUSH_SECONDS",
    "MAX_QUEUED_BYTES",
    "RESERVED_CONNECTIONS",
    "Access",
    "Batches",
    "EventReader",
    "Headers",
    "Immediate",
    "Listener",
    "QueuedMessage",
    "SendQueue",
    "ServedConnection",
    "Server",
    "ServerSentEvent",
    "enable_keepalive",
    "header_values",
    "listener_address",
    "listener_url",
    "network_problems",
    "open_listeners",
]
