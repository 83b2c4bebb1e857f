"""One HTTP request and its answer, for every front end.

The endpoints use these types and import no ASGI, socket or parser. A front end makes a `Request`, passes it to
`Endpoints.answer` and writes the returned `Answer`.
"""

from __future__ import annotations

import abc
import email.utils
import functools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar, TypeVarTuple, Unpack

import trio

from carmy_engine import BoundEngine, ExecutionRequest, HttpSettings
from carmy_engine.abc import PeerProcess
from carmy_engine.codec import invalid_request
from carmy_engine.errors import AgentError

HeaderList: TypeAlias = Sequence[tuple[bytes, bytes]]
Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

JSON_TYPE = (b"content-type", b"application/json")
NO_STORE = (b"cache-control", b"no-store")

WITHOUT_LENGTH = frozenset({204, 304})
"""Statuses whose answers have no ``Content-Length`` (RFC 9110, 8.6)."""


class Disconnected(Exception):  # noqa: N818 - a signal, like trio.EndOfChannel
    """The client closed the connection, so an answer is no longer needed."""


class Refusal(Exception):  # noqa: N818 - an answer, not a fault of ours
    """A request that is refused, with the answer to send.

    Args:
        error: The body of the answer.
        status: The status code, if it differs from that of the error's code and category.
        headers: Headers to add to the answer.
    """

    def __init__(
        self, error: AgentError, *, status: int | None = None, headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        super().__init__(error)
        self.error = error
        self.status = status
        self.headers = tuple(headers)


class RouteMatch(NamedTuple):
    """The decisions that depend on a request's head alone. `Endpoints` makes it once for each `RequestHead`.

    Attributes:
        headers: Headers to add to the answer.
        caller: The engine for this caller; None if the credentials have to be checked first.
        handler: Answers the request.
    """

    headers: Headers
    caller: BoundEngine | None
    handler: Handler


def split_path(path: str) -> tuple[str, bytes | None]:
    """The path of a request's target, and the authority if the target is in absolute form (``GET http://host/path``)."""
    if path.startswith("/") or "://" not in path:
        return path, None
    _, _, rest = path.partition("://")
    name, slash, path = rest.partition("/")
    return slash + path, name.encode("latin-1", "replace")


class RequestHead:
    """A request's method, path and headers. A front end may use one object for all requests with the same bytes.

    Attributes:
        method: Upper case.
        path: Decoded, without query and without `root`.
        root: The prefix under which the application is mounted, without a slash at its end.
        headers: In order; names in lower case.
        authority: From a target in absolute form (``GET http://host/path``), None otherwise.
        match: Set by `Endpoints` when it first answers a request with this head.
    """

    __slots__ = ("_first", "authority", "headers", "match", "method", "path", "root")

    def __init__(self, *, method: str, path: str, headers: HeaderList, authority: bytes | None = None) -> None:
        self.method = method
        self.path = path
        self.root = ""
        self.headers = headers
        self.authority = authority
        self.match: RouteMatch | None = None
        self._first: Mapping[bytes, bytes] = dict(reversed(headers))

    def set_root(self, root: str) -> None:
        """Set the prefix of the addresses, and remove it from the path if the request has come with it."""
        self.root = root
        if self.path.startswith(root + "/"):
            self.path = self.path[len(root) :]

    def first(self, name: bytes) -> bytes | None:
        """The first value of a header, None when it is absent."""
        return self._first.get(name)

    def every(self, name: bytes) -> list[bytes]:
        """All values of a header, in order."""
        return [value for key, value in self.headers if key == name] if name in self._first else []


class Request(abc.ABC):
    """One request. Its head is complete; its body may still be arriving.

    Attributes:
        head: Method, path and headers.
        peer: The client's address, None where it has none.
        process: The client's process, None where the server does not report one.
    """

    __slots__ = ("head", "peer", "process")

    def __init__(self, head: RequestHead, peer: str | None, process: PeerProcess | None = None) -> None:
        self.head = head
        self.peer = peer
        self.process = process

    async def read_body(self, limits: HttpSettings) -> bytes:
        """Read the body to its end. A checkpoint only if it has to wait.

        Args:
            limits: The time for the whole body, however steadily it trickles in, and its bytes.

        Raises:
            Refusal: 413 as soon as the body is known to be too large, 408 when it is too slow.
            AgentError: ``INVALID_REQUEST`` for a length that is no number.
            Disconnected: The client left before the end.
        """
        declared = self.head.first(b"content-length")
        if declared is not None:
            if not declared.isdigit():
                raise invalid_request("the header Content-Length is not a number")
            if len(declared) > 18 or int(declared) > limits.max_body_bytes:
                raise body_too_large(limits.max_body_bytes)
        body: bytes | bytearray = b""
        with trio.move_on_after(limits.body_timeout_secs):
            while chunk := await self.next_chunk():
                if len(body) + len(chunk) > limits.max_body_bytes:
                    raise body_too_large(limits.max_body_bytes)
                if not body:
                    body = chunk  # mostly all of it
                elif isinstance(body, bytes):
                    body = bytearray(body) + chunk
                else:
                    body += chunk  # tiny chunks cost no more than their bytes
            return bytes(body)
        raise body_too_slow(limits.body_timeout_secs)

    @abc.abstractmethod
    async def next_chunk(self) -> bytes:
        """The next piece of the body; empty at its end, and from then on.

        Raises:
            Disconnected: The client left before the end.
        """

    @abc.abstractmethod
    async def while_connected(self, run: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts) -> T:
        """Run a function that is cancelled as soon as the client closes the connection. Call it after `read_body`.

        Raises:
            Disconnected: The client closed the connection.
            trio.Cancelled: As `Disconnected`, if the front end ends the whole connection.
        """


def body_too_large(max_bytes: int) -> Refusal:
    """The refusal of a body that has more than `max_bytes`."""
    error = AgentError.standard(
        "PAYLOAD_TOO_LARGE",
        f"the body is larger than {max_bytes} bytes",
        suggested_action="Send large content by reference, for example as a URL or a path.",
        details={"limit_bytes": max_bytes},
    )
    return Refusal(error)


def body_too_slow(seconds: float) -> Refusal:
    """The refusal of a body that took longer than `seconds`."""
    return Refusal(invalid_request(f"the body did not arrive within {seconds:g} seconds"), status=408)


class Response:
    """A complete answer. The front end omits the body for HEAD and 304, and keeps ``content-length``.

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
        """The headers, with ``content-length``."""
        if self.status in WITHOUT_LENGTH:
            return self.headers
        return [*self.headers, (b"content-length", b"%d" % len(self.body))]


class BodyWriter(abc.ABC):
    """Writes the body of a `StreamResponse`. Each front end has one."""

    __slots__ = ()

    @abc.abstractmethod
    async def send(self, chunk: bytes) -> None:
        """Send bytes at once."""

    @abc.abstractmethod
    async def send_events(self, request: Request, engine: BoundEngine, wanted: ExecutionRequest) -> None:
        """Run an execution while the client is connected, and send its events and heartbeats.

        Raises:
            Disconnected: The client closed the connection.
        """


class StreamResponse:
    """An answer whose body is made while it is sent.

    Attributes:
        status: The status code. It and the headers are read when the first piece of the body is sent.
        headers: Lower-case names.
        run: Called once with a writer. Returns when the body is complete. If it has sent nothing, it may return a `Response`,
            which is then the whole answer.
    """

    __slots__ = ("headers", "run", "status")

    def __init__(
        self,
        status: int,
        headers: Iterable[tuple[bytes, bytes]],
        run: Callable[[BodyWriter], Awaitable[Response | None]],
    ) -> None:
        self.status = status
        self.headers: Headers = tuple(headers)
        self.run = run


Answer: TypeAlias = Response | StreamResponse

Handler: TypeAlias = Callable[[Request, BoundEngine], Awaitable[Answer]]
"""Answers the requests of one route and method, for an authenticated caller."""


MAX_CACHED_HEADS = 256
"""Rendered combinations of status and headers that are cached; answers differ in little but their bodies."""


def render_response(answer: Response, *, with_body: bool, ends: bool) -> bytes:
    """A complete answer.

    Args:
        answer: The answer.
        with_body: False for HEAD, which keeps the length.
        ends: The connection closes after it.
    """
    body = answer.body
    return b"".join(
        (
            render_head(answer.status, answer.headers, ends),
            http_date(),
            _END if answer.status in WITHOUT_LENGTH else b"\r\ncontent-length: %d\r\n\r\n" % len(body),
            body if with_body else b"",
        )
    )


_END = b"\r\n\r\n"


@functools.lru_cache(MAX_CACHED_HEADS)
def render_head(status: int, headers: Headers, ends: bool) -> bytes:
    """The status line and headers, up to the value of the header ``Date``."""
    lines = [b"HTTP/1.1 %d " % status, *(b"%b: %b" % header for header in headers)]
    if ends:
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, b"date: "])


_last_date = (0, b"")


def http_date() -> bytes:
    """The value of ``Date`` (RFC 9110, 6.6.1), rendered once a second."""
    global _last_date  # noqa: PLW0603 - a cache of one entry
    now = int(time.time())
    if _last_date[0] != now:
        _last_date = (now, email.utils.formatdate(now, usegmt=True).encode())
    return _last_date[1]
