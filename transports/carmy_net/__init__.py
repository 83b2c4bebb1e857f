"""Sockets, for servers and clients of any protocol.

- `Access`: checks of ``Host``, ``Origin`` and credentials. `within_trace`: a caller in the trace that its request names. `network_problems`: the settings that these checks would refuse.
- `lacking_permission`: the permission that a refused call lacks, as a scope of OAuth.
- `Listener`, `open_listeners`, `listener_address`, `listener_url`, `enable_keepalive`: listening sockets. `process_of`: the process behind a unix socket.
- `Server`: accepts connections and drains them. `serve_metrics`: a listener for Prometheus.
- `BatchChannel`: the channel of messages that a carrier brings. `SendQueue`: messages for a peer that may read slowly.
- `EventReader`: a parser of server-sent events, for clients.
"""

from __future__ import annotations

from ._access import Access, Headers, header_values, within_trace
from ._channel import BatchChannel
from ._listening import (
    Listener,
    enable_keepalive,
    listener_address,
    listener_url,
    network_problems,
    open_listeners,
    process_of,
)
from ._metrics_server import serve_metrics
from ._scopes import lacking_permission
from ._send_queue import DEFAULT_LOGGER, QueuedMessage, SendQueue
from ._server import FLUSH_SECONDS, RESERVED_CONNECTIONS, ServedConnection, Server
from ._sse_reader import EventReader, ServerSentEvent

__all__ = [
    "DEFAULT_LOGGER",
    "FLUSH_SECONDS",
    "RESERVED_CONNECTIONS",
    "Access",
    "BatchChannel",
    "EventReader",
    "Headers",
    "Listener",
    "QueuedMessage",
    "SendQueue",
    "ServedConnection",
    "Server",
    "ServerSentEvent",
    "enable_keepalive",
    "header_values",
    "lacking_permission",
    "listener_address",
    "listener_url",
    "network_problems",
    "open_listeners",
    "process_of",
    "serve_metrics",
    "within_trace",
]
