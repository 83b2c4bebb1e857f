"""Limits in time and number: heads, bodies, idle connections, early answers, connections."""

from __future__ import annotations

import pytest
import trio

from tests.http.tools import echo, sleep
from tests.support.http import Running, front_end, render, serving

START = b"POST /agent/execute HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


async def test_slow_head() -> None:
    """A head that does not arrive in time is answered with 408, however steadily it trickles in."""
    async with serving(echo, http={"header_timeout_secs": 0.1}) as server, server.client() as client:
        with trio.fail_after(5):
            await client.send(b"GET /health HTTP/1.1\r\nhost: ")
            answer = await client.answer()
            assert (answer.status, answer.code) == (408, "INVALID_REQUEST")
            assert await client.is_closed()


async def test_silent_connection() -> None:
    """A connection on which nothing arrives is closed in time, without an answer."""
    async with serving(echo, http={"header_timeout_secs": 0.1}) as server, server.client() as client:
        with trio.fail_after(5):
            assert await client.is_closed()


async def test_idle_connection_outlives_the_limit_of_heads() -> None:
    """Between requests a connection may be idle for longer than a head may take, and not for ever."""
    async with (
        serving(echo, http={"header_timeout_secs": 0.05, "keep_alive_secs": 0.3}) as server,
        server.client() as client,
    ):
        with trio.fail_after(5):
            assert (await client.request("GET", "/health")).status == 200
            before = trio.current_time()
            assert await client.is_closed()
            assert trio.current_time() - before > 0.1


async def test_slow_body() -> None:
    """A body that does not arrive in time is answered with 408, and the connection closes."""
    async with serving(echo, http={"body_timeout_secs": 0.1}) as server, server.client() as client:
        with trio.fail_after(5):
            await client.send(START + b"content-length: 100\r\n\r\n{")
            answer = await client.answer()
            assert (answer.status, answer.code) == (408, "INVALID_REQUEST")
            assert await client.is_closed()


async def test_trickling_body() -> None:
    """The limit is one for the whole body: bytes that keep coming do not extend it."""
    async with serving(echo, http={"body_timeout_secs": 0.1}) as server, server.client() as client:
        with trio.fail_after(5):
            await client.send(START + b"content-length: 1000000\r\n\r\n{")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trickle, client.stream)
                assert (await client.answer()).status == 408
                nursery.cancel_scope.cancel()


async def trickle(stream: trio.SocketStream) -> None:
    while True:
        try:
            await stream.send_all(b" ")
        except trio.BrokenResourceError:
            return
        await trio.sleep(0.01)


@pytest.mark.parametrize("framing", [b"content-length: 300000000", b"transfer-encoding: chunked"])
async def test_endless_body(framing: bytes) -> None:
    """A body beyond the limit is answered with 413, although the client goes on sending; then the connection closes."""
    async with serving(echo) as server:
        async with server.client() as client:
            with trio.fail_after(20):
                await client.send(START + framing + b"\r\n\r\n")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(flood, client.stream, b"10000\r\n" + b" " * 65536 + b"\r\n")
                    answer = await client.answer()
                    assert (answer.status, answer.headers["connection"]) == (413, "close")
                    nursery.cancel_scope.cancel()
        await nothing_is_left(server)


@pytest.mark.parametrize("before", [b"", b'5\r\n{"a":\r\n'])
async def test_a_chunk_beyond_the_limit_is_refused_as_soon_as_it_is_announced(before: bytes) -> None:
    """The size of the chunk is enough: the server does not wait for its bytes."""
    async with serving(echo) as server, server.client() as client:
        with trio.fail_after(10):
            await client.send(START + b"transfer-encoding: chunked\r\n\r\n" + before + b"100001\r\n")
            answer = await client.answer()
    assert (answer.status, answer.code, answer.headers["connection"]) == (413, "PAYLOAD_TOO_LARGE", "close")


async def test_a_chunk_beyond_the_limit_does_not_hide_another_refusal() -> None:
    """The type of the content is checked before the size of the body."""
    async with serving(echo) as server, server.client() as client:
        with trio.fail_after(10):
            head = START.replace(b"application/json", b"text/plain") + b"transfer-encoding: chunked\r\n\r\n"
            await client.send(head + b"100001\r\n")
            assert (await client.answer()).status == 400


async def flood(stream: trio.SocketStream, piece: bytes) -> None:
    try:
        while True:
            await stream.send_all(piece)
    except trio.BrokenResourceError:
        return


async def nothing_is_left(server: Running) -> None:
    with trio.fail_after(10):
        while trio.lowlevel.current_statistics().tasks_living > 30:
            assert (await server.get("/health")).status == 200


@pytest.mark.parametrize("path", ["/agent/execute", "/health", "/nowhere"])
async def test_answer_before_the_body(path: str) -> None:
    """An answer that did not wait for the body is not lost, and the unread body leaves no task behind."""
    async with serving(echo) as server:
        for _ in range(20):
            async with server.client() as client:
                with trio.fail_after(10):
                    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
                    await client.send(head.encode())
                    for _ in range(30):
                        await client.send(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                    answer = await client.answer()
                    assert answer.status in {400, 404, 405}
                    assert answer.headers["connection"] == "close"
        await nothing_is_left(server)


async def test_a_small_unread_body_does_not_cost_the_connection() -> None:
    """A refused request whose body has arrived leaves the connection usable."""
    async with serving(echo) as server, server.client() as client:
        assert (await client.request("POST", "/nowhere", {"content-type": "text/plain"}, b"body")).status == 404
        assert (await client.request("GET", "/health")).status == 200


async def test_connections_beyond_the_limit_wait() -> None:
    """More connections than allowed wait for another one to end; the native front end answers health at once."""
    async with (
        serving(echo, http={"max_connections": 2}) as server,
        server.client() as first,
        server.client() as second,
        server.client() as third,
    ):
        with trio.fail_after(10):
            await first.request("GET", "/health")
            await second.request("GET", "/health")
            await third.send(render("GET", "/agent/tools" if front_end.get() == "hypercorn" else "/health"))
            if front_end.get() == "hypercorn":
                with trio.move_on_after(0.1):
                    await third.answer()
                    pytest.fail("served beyond the limit")
                await first.stream.aclose()
            assert (await third.answer()).status == 200
            if front_end.get() == "native":
                assert await third.is_closed()


async def test_health_has_a_reserve() -> None:
    """The native front end answers health beyond the limit of connections, and refuses the rest until there is room."""
    if front_end.get() == "hypercorn":
        return
    async with serving(echo, http={"max_connections": 1}) as server:
        with trio.fail_after(10):
            async with server.client() as only:
                assert (await only.call("echo")).status == 200
                assert (await server.get("/health")).status == 200
                assert (await server.get("/ready")).status == 200
                refused = await server.call("echo")
                assert (refused.status, refused.code, refused.headers["connection"]) == (503, "OVERLOADED", "close")
                assert refused.headers["retry-after"] == "1"
                record = server.engine.audit.newest()[0]
                assert (record.error_code, record.transport) == ("OVERLOADED", "http")
                assert (await only.call("echo")).status == 200
            while (await server.call("echo")).status == 503:
                await trio.lowlevel.checkpoint()


async def test_a_flood_behind_a_request_is_cut_off() -> None:
    """A client that sends without end behind a request loses its connection, and memory stays bounded."""
    async with serving(sleep, echo) as server, server.client() as client:
        with trio.fail_after(10):
            body = b'{"tool":"sleep","arguments":{"seconds":60}}'
            await client.send(START + b"content-length: %d\r\n\r\n%b" % (len(body), body))
            await flood(client.stream, b"x" * 65536)
            await server.engine.wait_idle()
        assert (await server.call("echo")).status == 200


async def test_connections_of_one_address() -> None:
    """An address that has as many connections as it may gets no further one, until one of them ends."""
    async with serving(echo, http={"max_connections_per_address": 2}) as server:
        with trio.fail_after(10):
            async with server.client() as first, server.client() as second:
                assert (await first.request("GET", "/health")).status == 200
                assert (await second.request("GET", "/health")).status == 200
                async with server.client() as third:
                    assert await third.is_closed()
                assert (await first.request("GET", "/health")).status == 200
            while True:
                async with server.client() as client:
                    try:
                        assert (await client.request("GET", "/health")).status == 200
                        break
                    except (EOFError, trio.BrokenResourceError):
                        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("size", [0, 1])
async def test_configured_body_and_head(size: int) -> None:
    """A body and a head have the limits of the settings: exactly so many bytes pass, one more does not."""
    body = b'{"tool":"echo"}'
    async with serving(echo, http={"max_body_bytes": len(body), "max_head_bytes": 300}) as server:
        answer = await server.call("echo")
        padded = {"content-type": "application/json"}
        async with server.client() as client:
            answer = await client.request("POST", "/agent/execute", padded, body + b" " * size)
        assert answer.status == (413 if size else 200)
        plain = render("GET", "/health", {"x": ""})
        async with server.client() as client:
            await client.send(render("GET", "/health", {"x": "a" * (300 - len(plain) + size)}))
            assert (await client.answer()).status == (431 if size else 200)
