"""Types of ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApplication: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

PROCESS_KEY = "carmy.process"
"""The client's process, in a scope of the front end of this package. Other servers have no such key."""
