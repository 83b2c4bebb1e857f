"""Frames over standard input and output: one process, one connection, one JSON document per line.

- `serve`: the transport of the command ``carmy stdio``.
- `open_stdio`: starts such a command as a child process; an executor. `StdioClientLimits`: its limits.
- `open_lines`, `open_child`, `LineChannel`: the same for other protocols of one message per line.
- `claim`: reserves standard input and output for the protocol; call it before any code that might print.

Inside: `_descriptors` moves the protocol to private descriptors, `_stderr_relay` keeps standard error from blocking, `_pipe_io` reads
and writes without blocking the event loop, `_child` owns a child process, and `_peer_watch` detects that the peer has gone.
"""

from __future__ import annotations

from ._channel import LineChannel
from ._child import Child, open_child
from ._client import StdioClientLimits, open_stdio
from ._descriptors import claim
from ._server import open_lines, serve

__all__ = ["Child", "LineChannel", "StdioClientLimits", "claim", "open_child", "open_lines", "open_stdio", "serve"]
