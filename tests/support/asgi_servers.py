"""ASGI servers of others in a thread of this process, each on a free port of loopback."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import hypercorn.asyncio
import hypercorn.trio
import trio
import uvicorn
from hypercorn.config import Config

STOP_SECONDS = 20.0
"""Limit for a server to stop; it drains."""

Asgi = Any


class Served(NamedTuple):
    """A server that runs, and the function that asks it to stop."""

    url: str
    stop: Callable[[], None]


@contextmanager
def on_uvicorn(app: Asgi, *, lifespan: str = "on") -> Iterator[Served]:
    """Serve on uvicorn, which runs on asyncio."""
    sock = _listener()
    config = uvicorn.Config(app, log_config=None, lifespan=lifespan, timeout_graceful_shutdown=10)  # type: ignore[arg-type]
    server = uvicorn.Server(config)

    def stop() -> None:
        server.should_exit = True

    with _thread(lambda: asyncio.run(server.serve(sockets=[sock])), stop):
        yield Served(_url(sock), stop)


@contextmanager
def on_hypercorn_asyncio(app: Asgi) -> Iterator[Served]:
    """Serve on hypercorn on asyncio."""
    sock, stopping = _listener(), threading.Event()
    url, config = _url(sock), _config(sock)

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        waiter = threading.Thread(target=lambda: (stopping.wait(), loop.call_soon_threadsafe(stop.set)))
        waiter.start()
        await hypercorn.asyncio.serve(app, config, shutdown_trigger=stop.wait)  # type: ignore[arg-type]
        await asyncio.to_thread(waiter.join)

    with _thread(lambda: asyncio.run(main()), stopping.set):
        yield Served(url, stopping.set)


@contextmanager
def on_hypercorn_trio(app: Asgi) -> Iterator[Served]:
    """Serve on hypercorn on trio."""
    sock, stopping = _listener(), threading.Event()
    url, config = _url(sock), _config(sock)

    async def wait() -> None:
        await trio.to_thread.run_sync(stopping.wait)

    async def main() -> None:
        await hypercorn.trio.serve(app, config, shutdown_trigger=wait)

    with _thread(lambda: trio.run(main), stopping.set):
        yield Served(url, stopping.set)


SERVERS: dict[str, Callable[[Asgi], Any]] = {
    "uvicorn": on_uvicorn,
    "hypercorn-asyncio": on_hypercorn_asyncio,
    "hypercorn-trio": on_hypercorn_trio,
}


def _listener() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(128)
    return sock


def _url(sock: socket.socket) -> str:
    return f"http://127.0.0.1:{sock.getsockname()[1]}"


def _config(sock: socket.socket) -> Config:
    config = Config()
    config.bind = [f"fd://{sock.detach()}"]  # hypercorn closes it
    config.graceful_timeout = 10
    config.errorlog = None
    return config


@contextmanager
def _thread(run: Callable[[], object], stop: Callable[[], object]) -> Iterator[None]:
    failures: list[BaseException] = []

    def target() -> None:
        try:
            run()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(STOP_SECONDS)
        assert not thread.is_alive(), "the server does not stop"
    for failure in failures:
        raise failure
