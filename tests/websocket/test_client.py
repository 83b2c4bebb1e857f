"""The client of a WebSocket server."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from carmy_engine import (
    AgentContext,
    AgentError,
    BearerTokens,
    Cause,
    ClosedError,
    ConfigurationError,
    ExecutionRequest,
    OutcomeUnknownError,
)
from carmy_websocket import open_websocket
from tests.support.websocket import CLOSE, PING, TEXT, Running, frame, serving

READY = {
    "event": "ready",
    "protocol": "carmy-frames/1",
    "server": "fake",
    "tools": 0,
    "tools_version": "",
    "limits": {"max_message_bytes": 4194304, "max_calls": 1000},
}


def wait(gate: str, request_id: str | None = None) -> ExecutionRequest:
    """A request that waits at a gate."""
    return ExecutionRequest(tool="write", arguments={"tag": gate, "then": "wait", "gate": gate}, request_id=request_id)


async def arrived(server: Running, gate: str) -> None:
    """Wait until a call is at a gate."""
    with trio.fail_after(5):
        await server.stage.until(lambda: server.stage.arrived(gate) == 1)


ECHO = ExecutionRequest(tool="echo", arguments={"text": "a"})


async def test_calls_events_and_catalog() -> None:
    """Calls run side by side on one connection, streams give their events, and the catalog is the server's."""
    async with serving() as server, open_websocket(server.url) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.execute, wait("g"))
            await arrived(server, "g")
            assert (await client.execute(ECHO)).data == "a"
            server.stage.open("g")
        async with client.stream(ExecutionRequest(tool="partials", arguments={"count": 3})) as events:
            kinds = [event.kind async for event in events]
        assert kinds.count("tool.progress") == 3
        assert kinds[-1] == "execution.completed"
        assert (await client.catalog()).document == (await server.engine.catalog()).document


async def test_a_url_without_a_path() -> None:
    """A URL that names only the server means the path at which servers listen."""
    async with serving() as server:
        for url in (f"ws://127.0.0.1:{server.port}", f"ws://localhost:{server.port}/"):
            async with open_websocket(url) as client:
                assert (await client.execute(ECHO)).data == "a"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1", "ws://", "127.0.0.1:3000", "ws://a:b@c", "ws://h:99999", "ws://h/#x"]
)
async def test_urls_that_are_none(url: str) -> None:
    """What is not the URL of a WebSocket is refused before anything is connected."""
    with pytest.raises(ConfigurationError):
        async with open_websocket(url):
            pass


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX: y", "é"])
async def test_tokens_that_are_none(token: str) -> None:
    """A token that no header could carry is refused before anything is connected."""
    with pytest.raises(ConfigurationError):
        async with open_websocket("ws://127.0.0.1:1", token=token):
            pass


async def test_token() -> None:
    """The token identifies the caller; without a valid one, the server's own refusal is raised."""
    async with serving(authenticator=BearerTokens({"secret": AgentContext(principal="ana")})) as server:
        async with open_websocket(server.url, token="secret") as client:
            assert (await client.execute(ExecutionRequest(tool="whoami"))).data["principal"] == "ana"
        for token in (None, "wrong"):
            with pytest.raises(AgentError) as raised:
                async with open_websocket(server.url, token=token):
                    pass
            assert raised.value.code == "UNAUTHENTICATED"


async def test_nobody_listens() -> None:
    """A server that does not run is a ClosedError with its URL."""
    async with serving() as server:
        url = server.url
        server.engine.stop()
        await server.engine.shut_down()
        await server.returned.wait()
    with pytest.raises(ClosedError, match=r"ws://127.*: Connection refused"):
        async with open_websocket(url):
            pass


async def test_cancel_reaches_the_server() -> None:
    """Leaving a call's scope cancels it on the server, as if the caller had gone; other calls go on."""
    async with serving() as server, open_websocket(server.url) as client:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.execute, wait("g"))
                await arrived(server, "g")
                scope.cancel()
        assert server.stage.left("g") == 1
        (record,) = server.engine.audit.newest()
        assert record.cause is Cause.DISCONNECT
        assert (await client.execute(ECHO)).data == "a"


@pytest.mark.parametrize("rounds", [20, pytest.param(300, marks=pytest.mark.long)])
async def test_call_cancel_call(rounds: int) -> None:
    """Call, cancel, call, again and again: nothing is mixed up, and nothing stays behind."""
    async with serving() as server, open_websocket(server.url) as client:
        for number in range(rounds):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.execute, wait(f"g{number}"))
                    if number % 3:
                        for _ in range(number % 7):
                            await trio.lowlevel.checkpoint()
                    else:
                        await arrived(server, f"g{number}")
                    scope.cancel()
            text = f"<{number}>"
            result = await client.execute(ExecutionRequest(tool="echo", arguments={"text": text}))
            assert result.data == text
        assert not client._pending
        await server.idle()


async def test_closing_cancels_what_runs() -> None:
    """Leaving the client's block ends its calls on the server; calls in other tasks raise OutcomeUnknownError."""
    errors: list[Exception] = []

    async def call(run: Callable[[], Awaitable[object]]) -> None:
        try:
            await run()
        except OutcomeUnknownError as error:
            errors.append(error)

    async with serving() as server, trio.open_nursery() as nursery:
        async with open_websocket(server.url) as client:
            nursery.start_soon(call, lambda: client.execute(wait("g", "r1")))
            await arrived(server, "g")
        await server.idle()
        with pytest.raises(ClosedError):
            await client.execute(ECHO)
    (error,) = errors
    assert isinstance(error, OutcomeUnknownError)
    assert error.request_id == "r1"


async def test_exceptions_of_the_block_come_out_as_they_are() -> None:
    """An exception in the client's block is not wrapped, and the connection is closed."""
    async with serving() as server:
        with pytest.raises(KeyError, match="mine"):
            async with open_websocket(server.url):
                raise KeyError("mine")
        await server.idle()


Script = Callable[[trio.SocketStream], Awaitable[None]]


@asynccontextmanager
async def fake(script: Script) -> AsyncIterator[str]:
    """A server that follows a script on each connection; its URL."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def run(stream: trio.SocketStream) -> None:
        try:
            await script(stream)
        except trio.BrokenResourceError:
            pass
        finally:
            stream.socket.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, run, [listener])
        yield f"ws://127.0.0.1:{listener.socket.getsockname()[1]}/agent/ws"
        nursery.cancel_scope.cancel()


async def accept(stream: trio.SocketStream, *, together: bool = False) -> None:
    """Answer the handshake, and be ready; in two writes, or in one."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += await stream.receive_some(65536)
    (key,) = [
        line[len(b"sec-websocket-key:") :].strip()
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"sec-websocket-key:")
    ]
    accepted = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    answer = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Protocol: carmy-frames.1\r\nSec-WebSocket-Accept: " + accepted + b"\r\n\r\n"
    )
    ready = frame(TEXT, json.dumps(READY).encode(), masked=False)
    for data in [answer + ready] if together else [answer, ready]:
        await stream.send_all(data)


async def test_frames_behind_the_handshake() -> None:
    """What a server sends together with its answer to the handshake is not lost."""

    async def script(stream: trio.SocketStream) -> None:
        await accept(stream, together=True)
        await trio.sleep_forever()

    with trio.fail_after(5):
        async with fake(script) as url, open_websocket(url) as client:
            assert client.ready.server == "fake"


async def test_pings_while_closing() -> None:
    """A server that pings at every moment, while the client closes as well, disturbs neither the block nor what follows it."""

    async def script(stream: trio.SocketStream) -> None:
        await accept(stream)
        for _ in range(2000):
            await stream.send_all(frame(PING, b"x", masked=False))

    reached = 0
    async with fake(script) as url:
        for _ in range(20):
            with trio.fail_after(5):
                async with open_websocket(url):
                    await trio.lowlevel.checkpoint()
            # A stray cancel would show here.
            await trio.lowlevel.checkpoint()
            reached += 1
    assert reached == 20


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 500 \r\nContent-Type: application/json\r\n\r\nno length",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"without end " * 20_000,
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: \xff\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
    ],
)
async def test_what_is_no_server(answer: bytes) -> None:
    """Something else that listens there is a ClosedError at once, whatever it answers."""

    async def script(stream: trio.SocketStream) -> None:
        await stream.receive_some(65536)
        await stream.send_all(answer)

    async with fake(script) as url:
        with trio.fail_after(5), pytest.raises(ClosedError, match="ws://127"):
            async with open_websocket(url):
                pass


@pytest.mark.parametrize("end", ["end", "close", "rubbish", "unmask", "lie"])
async def test_a_server_that_breaks_off(end: str) -> None:
    """When the connection breaks after a call was sent, the call raises OutcomeUnknownError with its request_id at once."""

    async def script(stream: trio.SocketStream) -> None:
        await accept(stream)
        await stream.receive_some(65536)
        await stream.send_all(
            {
                "end": b"",
                "close": frame(CLOSE, b"\x03\xf3", masked=False),
                "rubbish": b"\xff" * 100,
                "unmask": frame(TEXT, b"{}"),
                "lie": frame(TEXT, b'{"id":99,"ok":true,"result":{}}', masked=False),
            }[end]
        )
        if end == "lie":
            await trio.sleep_forever()

    async with fake(script) as url, open_websocket(url) as client:
        with trio.fail_after(5), pytest.raises(OutcomeUnknownError, match="may have run") as raised:
            await client.execute(ExecutionRequest(tool="echo", request_id="r1"))
        assert raised.value.request_id == "r1"
        with pytest.raises(ClosedError):
            await client.execute(ECHO)


async def test_cancelled_at_any_moment() -> None:
    """Connecting, calling and closing may be cancelled at any of their awaits: nothing stays behind on either side."""
    async with serving() as server:

        async def act() -> None:
            async with open_websocket(server.url) as client:
                await client.execute(ECHO)

        for moment in range(60):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(act)
                    for _ in range(moment):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
        await server.idle()
        async with open_websocket(server.url) as client:
            assert (await client.execute(ECHO)).data == "a"
