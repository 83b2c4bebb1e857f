"""The link to a server, shared by stdio and HTTP: streams for the SDK, and progress notifications in the order of arrival."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Literal, Protocol, TypeAlias, TypeGuard

import anyio
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import JSONRPCNotification

from carmy_net import QueuedMessage

Hear: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""Takes one report: progress, total, message. Must not wait."""

Failure: TypeAlias = Literal["not_sent", "lost"]
"""Why there is no answer: nothing was sent, or the connection has broken since."""


class Call:
    """One call on its way.

    Attributes:
        message: As it was queued; None where it is not queued, or not yet.
        unreadable: Its answer has come, and could not be read.
    """

    __slots__ = ("__weakref__", "message", "unreadable")

    def __init__(self) -> None:
        self.message: QueuedMessage | None = None
        self.unreadable = False


CALL: ContextVar[Call | None] = ContextVar("carmy_mcp_call", default=None)
"""The call that this task sends: the SDK passes its message in the same task, and keeps its id to itself."""


class Link(Protocol):
    """A way to a server.

    Attributes:
        streams: For the SDK, which closes neither of them: the link outlives its session.
        listeners: The receivers of progress notifications, by progress token.
    """

    streams: tuple[Incoming, Sent]
    listeners: dict[str | int, Hear]

    def failure(self, error: MCPError, call: Call) -> tuple[Failure, str] | None:
        """Why a call has no answer, and words for it; None when the error is the answer."""
        ...


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Incoming:
    """The SDK's view of what comes in.

    The SDK handles each notification in a new task, so that their order is lost, and the last one may come after the answer.

    Args:
        receive: The next message. Raises `anyio.EndOfStream` at the end.
        listeners: See `Link`.

    Attributes:
        has_news: The server has sent a notification that its tools changed.
    """

    def __init__(
        self, receive: Callable[[], Awaitable[SessionMessage | Exception]], listeners: dict[str | int, Hear]
    ) -> None:
        self._receive = receive
        self._listeners = listeners
        self.has_news = False

    async def receive(self) -> SessionMessage | Exception:
        """The next message that is for the SDK."""
        while True:
            item = await self._receive()
            if isinstance(item, Exception) or not await self._hears(item):
                return item

    async def _hears(self, item: SessionMessage) -> bool:
        message = item.message
        if not isinstance(message, JSONRPCNotification):
            return False
        self.has_news |= message.method == "notifications/tools/list_changed"
        if message.method != "notifications/progress":
            return False
        params = message.params or {}
        token, progress, total, text = (params.get(name) for name in ("progressToken", "progress", "total", "message"))
        hear = self._listeners.get(token) if isinstance(token, str | int) else None
        if hear is not None and _is_number(progress):
            await hear(
                float(progress), float(total) if _is_number(total) else None, text if isinstance(text, str) else None
            )
        return True

    async def aclose(self) -> None:
        """Nothing: see `Link`."""

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Incoming:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        return None


class Sent:
    """The SDK's view of what goes out.

    Args:
        send: Takes a message. Raises `anyio.ClosedResourceError` when it cannot be sent.
    """

    def __init__(self, send: Callable[[SessionMessage], Awaitable[None]]) -> None:
        self._send = send

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message."""
        await self._send(item)

    async def aclose(self) -> None:
        """Nothing: see `Link`."""

    async def __aenter__(self) -> Sent:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        return None
