"""One HTTP request and its answer, whatever front end carries them.

The endpoints know these types and nothing of ASGI, sockets or parsers; a front end makes a `Request`, hands it to
`Endpoints.answer` and writes what comes back.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, TypeAlias

import trio

from carmy_engine import BoundEngine

HeaderList: TypeAlias = Sequence[tuple[bytes, bytes]]
Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
SendChunk: TypeAlias = Callable[[bytes], Awaitable[None]]

JSON_TYPE = (b"content-type", b"application/json")
NO_STORE = (b"cache-control", b"no-store")

WITHOUT_LENGTH = frozenset({204, 304})
"""Statuses of answers whose length is not told (RFC 9110, 8.6)."""


def split_path(path: str) -> tuple[str, bytes | None]:
    """The path of a request's target, and the authority if the target is in absolute form (``GET http://host/path``)."""
    if path.startswith("/") or "://" not in path:
        return path, None
    _, _, rest = path.partition("://")
    name, slash, path = rest.partition("/")
    return slash + path, name.encode("latin-1", "replace")


class PlainCall(NamedTuple):
    """A request to run one tool and to answer with one document, that asks for nothing special and may be answered.

    Attributes:
        engine: As the caller may use it.
        extra: Headers to add to the answer.
    """

    engine: BoundEngine
    extra: Headers


class Disconnected(Exception):  # noqa: N818 - a signal, like trio.EndOfChannel
    """The client has gone: there is nobody to answer."""


class RequestHead:
    """What one request says before its body.

    Attributes:
        method: Upper case.
        path: Decoded, without query and without `root`.
        root: The prefix under which the application is mounted, without a slash at its end.
        headers: In order; names in lower case.
        peer: The client's address, None where there is none.
        authority: From a target in absolute form (``GET http://host/path``), None otherwise.
        plain: What `Endpoints.plain_call` found of it, None where nobody has asked.
    """

    __slots__ = ("_first", "authority", "headers", "method", "path", "peer", "plain", "root")

    def __init__(
        self,
        *,
        method: str,
        path: str,
        root: str,
        headers: HeaderList,
        peer: str | None,
        authority: bytes | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.root = root
        self.headers = headers
        self.peer = peer
        self.authority = authority
        self.plain: PlainCall | None = None
        self._first: Mapping[bytes, bytes] = dict(reversed(headers))

    def first(self, name: bytes) -> bytes | None:
        """The first value of a header, None when it is absent."""
        return self._first.get(name)

    def every(self, name: bytes) -> list[bytes]:
        """All values of a header, in order."""
        return [value for key, value in self.headers if key == name] if name in self._first else []


class Request(RequestHead, abc.ABC):
    """One request, its head complete and its body still on the way."""

    __slots__ = ()

    def body_at_hand(self) -> bytes | None:
        """The whole body, if it is here already and nothing of it has been taken: most are, and need no time limit."""
        return None

    @abc.abstractmethod
    async def next_chunk(self) -> bytes:
        """The next piece of the body; empty at its end, and from then on.

        Raises:
            Disconnected: The client left before the end.
        """

    @abc.abstractmethod
    def cancelled_when_gone(self) -> AbstractAsyncContextManager[trio.CancelScope]:
        """A block that is cancelled as soon as the client goes away. Enter it after the body has been read.

        The scope's ``cancelled_caught`` tells afterwards whether that happened.
        """

    def watch(self) -> bool:
        """From here to `unwatch`, cancel a scope outside of the caller's reach when the client goes away.

        Costs next to nothing. False, and nothing has begun, where only `cancelled_when_gone` can tell.
        """
        return False

    def unwatch(self) -> None:
        """The client's end cancels nothing any more."""


class Response:
    """A complete answer. The front end leaves the body out for HEAD and 304; ``content-length`` stands.

    Attributes:
        status: The status code.
        headers: Lower-case names; the length of the body is not among them, see `all_headers`.
        body: The bytes.
    """

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> None:
        self.status = status
        self.body = body
        self.headers: Headers = tuple(headers)

    def all_headers(self) -> HeaderList:
        """The headers, that of its length included."""
        if self.status in WITHOUT_LENGTH:
            return self.headers
        return [*self.headers, (b"content-length", b"%d" % len(self.body))]


class StreamResponse:
    """An answer whose body is made while it is sent.

    Attributes:
        status: The status code. It and the headers count from the first piece of the body on.
        headers: Lower-case names.
        run: Called once with a function that sends bytes at once. Returns when the body is complete, and the whole answer if
            it has sent nothing and there is nothing to wait for: status, headers and body are then that one's. A body that
            the client did not wait for just ends.
    """

    __slots__ = ("headers", "run", "status")

    def __init__(
        self,
        status: int,
        headers: Iterable[tuple[bytes, bytes]],
        run: Callable[[SendChunk], Awaitable[Response | None]],
    ) -> None:
        self.status = status
        self.headers: Headers = tuple(headers)
        self.run = run


Answer: TypeAlias = Response | StreamResponse
