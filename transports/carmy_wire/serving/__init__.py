"""What servers on sockets share, whatever they speak.

- `Access`: who may talk to us at all: ``Host``, ``Origin``, credentials.
- `open_listeners`, `address_of`, `Server`: listening, accepting and draining.
"""

from __future__ import annotations

from ._access import Access, Headers
from ._server import FLUSH_SECONDS, Served, Server, address_of, open_listeners

__all__ = ["FLUSH_SECONDS", "Access", "Headers", "Served", "Server", "address_of", "open_listeners"]
