"""Hypercorn over the guarded stream, with applications that are not ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from carmy_engine import HttpSettings, Settings
from carmy_http.hypercorn.front_end import connector
from carmy_net import Server, open_listeners
from tests.support.http import Client, render

END = {"type": "http.response.body", "body": b"ok"}
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}


@pytest.fixture
def server() -> None:
    """Not one front end or the other: this is a part of one."""


@asynccontextmanager
async def serving(app: Any, **limits: Any) -> AsyncIterator[Client]:
    """A connection to a server with an application; in the end nothing of the server may be left but for its listener."""
    (listener,) = await open_listeners(Settings(address="127.0.0.1:0"), authenticated=False)
    port = listener.socket.getsockname()[1]
    http = HttpSettings(header_timeout_secs=5.0, max_connections=10, **limits)
    stopping, stopped = trio.Event(), trio.Event()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Server(connector(app, http), http).run, [listener], stopping, stopped, lambda: None)
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                yield Client(stream)
            stopping.set()
            stopped.set()


async def test_work_behind_an_answer_outlives_the_client() -> None:
    """What an application does after its answer is not cut off when the client closes."""
    answered, go_on, done = trio.Event(), trio.Event(), trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(END)
        answered.set()
        await go_on.wait()
        done.set()

    async with serving(app) as client:
        await client.send(render("GET", "/"))
        assert (await client.answer()).body == b"ok"
        await answered.wait()
        await client.stream.send_eof()
        await trio.testing.wait_all_tasks_blocked()
        go_on.set()
        await done.wait()
        assert await client.is_closed()


async def test_a_body_comes_as_the_application_asks_for_it() -> None:
    """However fast a client sends, no more of a body is taken in than the bound until the application receives it."""
    size = 30_000_000
    go_on = trio.Event()
    pieces: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        while True:
            message = await receive()
            pieces.append(len(message["body"]))
            if not message["more_body"]:
                break
        await send(START)
        await send(END)

    async with serving(app, max_unread_bytes=100_000) as client, trio.open_nursery() as nursery:
        await client.send(render("POST", "/", {"content-length": str(size)}))
        sent = trio.Event()

        async def send() -> None:
            await client.send(b"x" * size)
            sent.set()

        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not sent.is_set()  # the kernel's buffers are full, and so are ours
        go_on.set()
        assert (await client.answer()).status == 200
    assert sum(pieces) == size


@pytest.mark.parametrize("answers", [0, 1])
async def test_an_application_that_does_not_finish_its_answer(answers: int) -> None:
    """It costs its connection, in an orderly way, and a pipelined request behind it is not answered."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in [START, END][:answers]:
            await send(message)

    async with serving(app) as client:
        await client.send(render("GET", "/") * 2)
        heard = b""
        while data := await client.stream.receive_some(65536):
            heard += data
    assert heard.count(b"HTTP/1.1") == 1
    assert heard.startswith(b"HTTP/1.1 200" if answers else b"HTTP/1.1 500")


async def test_pipelined_requests_reach_the_application_one_by_one() -> None:
    """The next request begins only when the answer before it is complete."""
    running = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal running
        running += 1
        assert running == 1
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        running -= 1
        await send(START)
        await send(END)

    async with serving(app) as client:
        await client.send(render("GET", "/") * 20)
        for _ in range(20):
            assert (await client.answer()).body == b"ok"
