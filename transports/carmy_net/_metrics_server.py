"""A listener of its own for Prometheus: ``GET /metrics``, one request for each connection."""

from __future__ import annotations

import contextlib
import functools
import logging

import msgspec
import trio

from carmy_engine import ConfigurationError, Engine, HttpSettings, Settings
from carmy_engine.transport import Transport, contain

from ._listening import listener_url, network_problems, open_listeners
from ._server import Server
from .http1 import FramingError, HeadReader, read_head

log = logging.getLogger("carmy.http")

PATH = "/metrics"
LIMITS = HttpSettings(max_connections=16, max_head_bytes=8 * 1024, linger_timeout_secs=1.0)
"""A few scrapers, which send short heads."""

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def _serve(engine: Engine, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
    """Serve the metrics of an engine at ``metrics.address`` until it has stopped, or until cancelled.

    The metrics name tools and codes, and contain nothing of callers. So there are no credentials; the address decides.

    Args:
        engine: An open engine.
        task_status: Started with a line for people, which ends in the URL.

    Raises:
        ConfigurationError: The address cannot be bound.
    """
    address = engine.settings.metrics.address
    assert address is not None
    settings = msgspec.structs.replace(engine.settings, address=address, reuse_port=False)
    try:
        listeners = await open_listeners(settings, authenticated=True)
    except ConfigurationError as error:
        raise ConfigurationError(f"metrics.{error}") from error
    line = f"metrics on {listener_url(listeners[0], 'http', PATH)}"
    server = Server(functools.partial(_Scrape, engine), LIMITS, log=log)
    await server.run(listeners, engine.stopped, engine.stopped, lambda: task_status.started(line))


async def _problems(settings: Settings, *, authenticated: bool) -> list[ConfigurationError]:
    """The reasons why the address of the metrics cannot be listened at; they need no credentials, so no address needs any."""
    address = settings.metrics.address
    if address is None:
        return []
    elsewhere = msgspec.structs.replace(settings, address=address)
    found = await network_problems(elsewhere, authenticated=True)
    # Hosts and origins are those of the other listener, which reports them.
    return [ConfigurationError(f"metrics.{problem}") for problem in found if str(problem).startswith("address")]


serve_metrics = Transport(_serve, help="Serve the metrics.", problems=_problems)
"""The service; see `_serve`."""


class _Scrape:
    """One connection."""

    def __init__(self, engine: Engine, stream: trio.SocketStream) -> None:
        self._engine = engine
        self._stream = stream

    def drain(self) -> None:
        """See `ServedConnection`: the connection ends with its one answer."""

    async def run(self) -> None:
        """Answer one request, and close."""
        try:
            with trio.move_on_after(LIMITS.header_timeout_secs):
                await self._stream.send_all(await self._answer())
                await self._stream.send_eof()
            with trio.move_on_after(LIMITS.linger_timeout_secs):  # closing with unread bytes would reset the connection
                while await self._stream.receive_some():
                    pass
        except (trio.BrokenResourceError, trio.ClosedResourceError, EOFError):
            pass  # the scraper has gone
        except BaseException as error:  # noqa: BLE001 - the boundary of one connection
            contain(error, log, "a request for metrics failed")
        finally:
            with contextlib.suppress(OSError):
                self._stream.socket.close()

    async def _answer(self) -> bytes:
        reader, received = HeadReader(LIMITS.max_head_bytes), bytearray()
        try:
            while (raw := reader.take(received)) is None:
                data = await self._stream.receive_some(LIMITS.max_head_bytes)
                if not data:
                    raise EOFError
                received += data
            head = read_head(raw, LIMITS.max_head_bytes)
        except FramingError as error:
            return _response(error.status, error.reason)
        if head.target.partition(b"?")[0] != PATH.encode():
            return _response(404, f"there is only {PATH} here")
        if head.method not in {b"GET", b"HEAD"}:
            return _response(405, "only GET and HEAD are answered here", "Allow: GET, HEAD\r\n")
        answer = _response(200, self._engine.prometheus())
        return answer if head.method == b"GET" else answer[: answer.index(b"\r\n\r\n") + 4]


def _response(status: int, body: str, headers: str = "") -> bytes:
    data = body.encode()
    head = f"HTTP/1.1 {status} \r\nContent-Type: {_CONTENT_TYPE}\r\nContent-Length: {len(data)}\r\n{headers}"
    return f"{head}Connection: close\r\nCache-Control: no-store\r\n\r\n".encode() + data
