"""The client in front of servers that break the protocol, over stdio and HTTP: bounded, with an error that has the reason."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from carmy_engine import ClosedError, ExecutionRequest, OutcomeUnknownError
from carmy_mcp import McpClientLimits, open_mcp
from carmy_mcp.client.executor import McpClient
from tests.mcp.test_client import request
from tests.mcp.test_client_http import LISTED, NAME, far_server, result
from tests.support.http_client import Exchange
from tests.support.http_client import scripted as scripted_http

SERVER = r"""
import json, sys

def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()

def pages(id, params):
    PAGES

def call(id, arguments):
    CALL

for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        info = {"name": "hostile", "version": "1"}
        send(id=id, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        pages(id, params)
    elif method == "tools/call":
        call(id, params.get("arguments"))
    elif id is not None:
        send(id=id, error={"code": -32601, "message": "no such method"})
"""

ONE = 'send(id=id, result={"tools": [{"name": "far", "inputSchema": {"type": "object"}}]})'


@asynccontextmanager
async def hostile(*, pages: str = ONE, call: str = "pass", **limits: Any) -> AsyncIterator[McpClient]:
    """The client of a server that answers by the given statements."""
    program = SERVER.replace("PAGES", pages.replace("\n", "\n    ")).replace("CALL", call.replace("\n", "\n    "))
    with trio.fail_after(50):
        async with open_mcp([sys.executable, "-c", program], limits=McpClientLimits(**limits)) as client:
            yield client


@pytest.mark.parametrize(
    ("pages", "words"),
    [
        ('send(id=id, result={"tools": [], "nextCursor": "again"})', "on more than 50 pages"),
        (
            'send(id=id, result={"tools": [{"name": str(n), "inputSchema": {}} for n in range(40)], "nextCursor": "x"})',
            "more than 100 tools",
        ),
        ('send(id=id, result={"tools": {}})', "does not speak the protocol"),
        ('send(id=id, result={"tools": [], "nextCursor": 5})', "does not speak the protocol"),
        ('send(id=id, error={"code": -32603, "message": "not today"})', "refused: not today"),
        ("sys.exit(3)", "exit code 3"),
        ('sys.stdout.write("x" * 30_000)\nsys.stdout.flush()', "more than 20000 bytes"),
    ],
)
async def test_lists(pages: str, words: str) -> None:
    """A list without an end, a malformed one or none keeps the block from opening, with a reason."""
    with pytest.raises(ClosedError, match=words):
        async with hostile(pages=pages, max_pages=50, max_listed=100, max_answer_bytes=20_000):
            raise AssertionError("it cannot be open")


async def test_entries_that_are_not_valid() -> None:
    """A tool whose entry cannot be read is left out, and harms no other."""
    pages = """send(id=id, result={"tools": [
    5, {"name": 5}, {"name": "bad", "inputSchema": "x"},
    {"name": "far", "inputSchema": {"type": "object"}, "annotations": None, "outputSchema": None}]})"""
    async with hostile(pages=pages, call='send(id=id, result={"content": []})') as client:
        assert [spec.name for spec in (await client.catalog()).tools] == ["far"]
        assert (await client.execute(request("far"))).status == "completed"


@pytest.mark.parametrize(
    "call",
    [
        'send(id=id + 1000, result={"content": []})',
        'send(id=None, result={"content": []})',
        'send(id=True, result={"content": []})',
        "send(id=id)",
        'send(id=None, error={"code": -32603, "message": "whose?"})',
        'sys.stdout.write("{" * 50_000 + "\\n")\nsys.stdout.flush()',
        'sys.stdout.buffer.write(b"\\xff\\xfe\\n")\nsys.stdout.flush()',
    ],
)
async def test_answers_to_something_else(call: str) -> None:
    """A message that does not answer the call leaves it to its limit; the connection goes on."""
    async with hostile(call=call) as client:
        late = await client.execute(request("far", timeout_ms=300))
        if late.error is not None and late.error.code == "INVALID_OUTPUT":  # it has the id, and is no answer
            assert call == "send(id=id)"
        else:
            assert late.status == "timed_out"
        assert [spec.name for spec in (await client.catalog()).tools] == ["far"]


async def test_ids_as_texts_and_twice() -> None:
    """An id that comes back as a text is the same id. A second answer is ignored."""
    call = 'for text in ("one", "two"):\n    send(id=str(id), result={"content": [{"type": "text", "text": text}]})'
    async with hostile(call=call) as client:
        for _ in range(3):
            assert (await client.execute(request("far"))).data == "one"


async def test_a_server_that_does_not_read() -> None:
    """Calls to a server that does not read any more wait within their limits, and the block ends."""
    async with hostile(call="import time\ntime.sleep(1000)") as client, trio.open_nursery() as nursery:
        for _ in range(20):
            call = ExecutionRequest(tool="far", arguments={"text": "x" * 100_000}, timeout_ms=500)
            nursery.start_soon(client.execute, call)


async def test_a_stream_that_ends_again_and_again() -> None:
    """A server may end its streams as often as it likes, as long as it lets them be resumed: the answer counts."""
    asked: list[dict[str, Any]] = []
    positions: list[bytes] = []

    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        headers = {"content_type": "text/event-stream"}
        if message:
            asked.append(message)
            await exchange.answer(200, b"retry: 5\nid: p0\ndata:\n\n", **headers)
            return
        found = next(line for line in exchange.head.lower().split(b"\r\n") if line.startswith(b"last-event-id"))
        positions.append(found.partition(b": ")[2])
        if len(positions) < 8:
            # Every other stream says nothing at all.
            more = b"id: p%d\ndata:\n\n" % len(positions) if len(positions) % 2 else b": nothing\n\n"
            await exchange.answer(200, more, **headers)
            return
        body = {"jsonrpc": "2.0", "id": asked[0]["id"], "result": {"content": [{"type": "text", "text": "at last"}]}}
        await exchange.answer(200, b"data: " + json.dumps(body).encode() + b"\n\n", **headers)

    async with far_server(answer) as url, open_mcp(url) as client:
        assert (await client.execute(request("far"))).data == "at last"
    assert positions == [b"p0", b"p1", b"p1", b"p3", b"p3", b"p5", b"p5", b"p7"]
    assert len(asked) == 1


@pytest.mark.parametrize("position", [b"p1", "é".encode(), b"p\x01", b"x" * 5000])
async def test_a_stream_that_cannot_be_resumed(position: bytes) -> None:
    """Where the rest of a stream is refused, or its position fits no header, the outcome is unknown."""

    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        if message:
            await exchange.answer(200, b"id: " + position + b"\ndata:\n\n", content_type="text/event-stream")
        else:
            await exchange.answer(404, b"")

    async with far_server(answer) as url, open_mcp(url, limits=McpClientLimits(resume_secs=0.01)) as client:
        with pytest.raises(OutcomeUnknownError, match="stream ended"):
            await client.execute(request("far"))


async def test_a_session_that_ended() -> None:
    """A session that the server has ended is replaced, once for all calls, and the calls that it had refused are sent again."""
    sessions: list[str] = []
    calls: list[str] = []

    async def script(exchange: Exchange) -> None:
        while True:
            await exchange.read()
            message = json.loads(exchange.body or b"{}")
            head = exchange.head.lower().decode()
            method = message.get("method")
            if method == "initialize":
                sessions.append(f"s{len(sessions)}")
                info = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": NAME}
                await result(exchange, message, info, mcp_session_id=sessions[-1])
            elif method == "server/discover":
                await exchange.answer(400, b"")
            elif f"mcp-session-id: {sessions[-1]}" not in head:
                await exchange.answer(404, b"")
            elif method == "tools/list":
                await result(exchange, message, LISTED)
            elif method == "tools/call" and len(sessions) == 1:
                sessions.append("gone")  # it forgets the session, and what it was asked
                await exchange.answer(404, b"")
            elif method == "tools/call":
                calls.append(sessions[-1])
                await result(exchange, message, {"content": [{"type": "text", "text": "ran"}]})
            elif "id" not in message and exchange.head.startswith(b"POST"):
                await exchange.answer(202, b"")
            else:
                await exchange.answer(405, b"")

    with trio.fail_after(50):
        async with scripted_http(script) as url, open_mcp(f"{url}/mcp") as client:
            results: list[Any] = []

            async def call() -> None:
                results.append((await client.execute(request("far"))).data)

            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(call)
    assert results == ["ran"] * 3
    assert sessions == ["s0", "gone", "s2"]
    assert calls == ["s2"] * 3
