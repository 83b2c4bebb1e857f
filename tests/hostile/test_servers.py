"""Servers that are none, or mean harm: what the client makes of them is a result or one of its own errors."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from carmy_engine import AgentError, ClosedError, ExecutionRequest, OutcomeUnknownError
from carmy_http import HttpClientLimits, open_http

LIMIT_SECONDS = 30.0
MAX_MEMORY = 40 * 1024 * 1024
"""The client takes answers of 4 MiB here; an endless one may cost a few copies of that, and no more."""

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def sized(body: bytes, head: bytes = OK) -> bytes:
    return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)


# What is sent once, and what is sent after it again and again until the client goes away.
ANSWERS: dict[str, tuple[bytes, bytes]] = {
    "nothing": (b"", b""),
    "nonsense": (b"\x00\xff\xfe\r\n\r\n", b""),
    "endless nonsense": (b"", b"\x00" * 65536),
    "another protocol": (b"SSH-2.0-OpenSSH_9.0\r\n", b""),
    "HTTP/0.9": (b"hello", b""),
    "an endless status line": (b"HTTP/1.1 200 ", b"O" * 65536),
    "endless headers": (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 10_000),
    "endless interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
    "a change of protocol": (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", b""),
    "a redirection": (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", b""),
    "a status of 999": (b"HTTP/1.1 999 No\r\ncontent-length: 2\r\n\r\n{}", b""),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\n\r\n", b""),
    "an empty body": (sized(b""), b""),
    "half a body": (OK + b"content-length: 100\r\n\r\n{", b""),
    "two lengths": (OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}", b""),
    "an endless body": (OK + b"\r\n", b" " * 65536),
    "an endless body that is compressed": (OK + b"content-encoding: gzip\r\n\r\n", b"\x1f\x8b\x08\x00" * 16384),
    "a bad chunk": (OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n", b""),
    "endless chunks": (OK + b"transfer-encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 65536 + b"\r\n"),
    "no JSON": (sized(b"hello"), b""),
    "no UTF-8": (sized(b'{"execution_id":"\xff"}'), b""),
    "no object": (sized(b"[]"), b""),
    "an empty object": (sized(b"{}"), b""),
    "wrong types": (sized(b'{"execution_id":1,"status":2,"data":3}'), b""),
    "an error of wrong types": (sized(b'{"execution_id":"a","status":"failed","error":[]}'), b""),
    "an error without a code": (sized(b'{"error":{}}', b"HTTP/1.1 400 Bad\r\n"), b""),
    "deep JSON": (sized(b'{"execution_id":"a","status":"completed","data":' + b"[" * 100_000), b""),
    "deep JSON that ends": (sized(b'{"execution_id":"a","status":"completed","data":' + b"[" * 50_000 + b"]" * 50_000 + b"}"), b""),
    "a page of a proxy": (sized(b"<html>" * 1000, b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\n"), b""),
    "a wait that is no number": (sized(b"{}", b"HTTP/1.1 503 No\r\nretry-after: soon\r\n"), b""),
    "a wait without end": (sized(b"{}", b"HTTP/1.1 503 No\r\nretry-after: 99999999999999999999\r\n"), b""),
    "no events": (EVENTS, b""),
    "an endless line": (EVENTS, b"data: " + b"a" * 65536),
    "an event without an end": (EVENTS + b"event: execution.completed\n", (b"data: " + b"{" * 57 + b"\n") * 1000),
    "an event that is no JSON": (EVENTS + b"event: tool.progress\ndata: hello\n\n", b""),
    "an event of wrong types": (EVENTS + b'event: execution.completed\ndata: {"execution_id":1}\nid: x\n\n', b""),
    "events after the last": (EVENTS + b'event: execution.completed\ndata: {"execution_id":"a","status":"completed","data":1}\n\n' * 3, b""),
    "unknown events": (EVENTS + b"event: hello\ndata: {}\n\n", b""),
    "heartbeats without end": (EVENTS, b""),
}  # fmt: skip


@asynccontextmanager
async def answering(first: bytes, then: bytes) -> AsyncIterator[str]:
    """A server that answers every connection so; its URL."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            try:
                await stream.receive_some(65536)
                await stream.send_all(first)
                while then:
                    await stream.send_all(then)
            except trio.BrokenResourceError:
                pass

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


SHORT = HttpClientLimits(
    margin_secs=0.5, catalog_secs=0.5, silence_secs=0.5, max_answer_bytes=4 * 1024 * 1024, first_wait_secs=0.01
)


@pytest.mark.parametrize("how", ["execute", "stream", "catalog"])
@pytest.mark.parametrize("name", ANSWERS)
async def test_answers(name: str, how: str) -> None:
    """The client raises its own errors only, in bounded time and memory, and goes on to work."""
    told: list[str] = []
    tracemalloc.start()
    request = ExecutionRequest(tool="echo", arguments={}, timeout_ms=500)
    try:
        with trio.fail_after(LIMIT_SECONDS):
            async with answering(*ANSWERS[name]) as url, open_http(url, limits=SHORT) as client:
                for _ in range(2):
                    try:
                        if how == "execute":
                            result = await client.execute(request)
                            assert result.error is not None
                        elif how == "catalog":
                            await client.catalog()
                        else:
                            async with client.stream(request) as events:
                                async for event in events:
                                    assert event.seq >= 0
                    except (ClosedError, OutcomeUnknownError, AgentError) as error:
                        told.append(str(error))
        assert all(0 < len(words) < 2000 for words in told)
        assert tracemalloc.get_traced_memory()[1] < MAX_MEMORY
    finally:
        tracemalloc.stop()


async def test_a_success_that_cannot_be_read() -> None:
    """An answer of an execution that the client cannot read does not mean that nothing has run."""
    async with answering(*ANSWERS["deep JSON that ends"]) as url, open_http(url) as client:
        with trio.fail_after(LIMIT_SECONDS), pytest.raises(OutcomeUnknownError):
            await client.execute(ExecutionRequest(tool="echo"))
