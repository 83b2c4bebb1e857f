"""Frames over standard input and output: one process, one connection, one JSON document a line.

- `serve`: the transport, as the command ``carmy stdio`` runs it.
- `open_stdio`: starts such a command, and is an executor in front of it.
- `open_lines`, `open_child`, `LineChannel`: the same without our frames, for other protocols of one message a line.
- `claim`: takes standard input and output for the protocol; call it before anything that might print.

Inside: `_descriptors` moves the protocol to descriptors that nobody else knows, `_stderr_relay` keeps a full standard error from
blocking, `_pipe_io` reads and writes without blocking anything but a thread, `_child` owns a child process.
"""

from __future__ import annotations

from ._channel import LineChannel
from ._child import Child, open_child
from ._client import open_stdio
from ._descriptors import claim
from ._server import open_lines, serve

__all__ = ["Child", "LineChannel", "claim", "open_child", "open_lines", "open_stdio", "serve"]
