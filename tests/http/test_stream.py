"""Server-sent events."""

from __future__ import annotations

import json
from typing import Any

import trio

from carmy_engine import AgentContext, tool
from carmy_engine.codec import one_line
from carmy_http.api import event_response
from tests.http.tools import big, echo, fail, parts, progress, sleep
from tests.support.http import JSON, Client, serving

EVENTS = {"accept": "text/event-stream"}


def parse(body: bytes) -> list[tuple[str, Any, int]]:
    """The events of a body, each checked to have exactly the three promised lines."""
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        if block.startswith(":"):
            continue
        kind, data, number = block.split("\n")
        assert (kind[:7], data[:6], number[:4]) == ("event: ", "data: ", "id: ")
        found.append((kind[7:], json.loads(data[6:]), int(number[4:])))
    return found


async def start(client: Client, name: str, **arguments: Any) -> None:
    body = json.dumps({"tool": name, "arguments": arguments}).encode()
    head = f"POST /agent/execute HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\ncontent-type: {JSON}\r\n"
    await client.send(head.encode() + b"content-length: %d\r\n\r\n%b" % (len(body), body))
    status, _ = await client.head()
    assert status == 200


async def test_events_in_order() -> None:
    """A stream starts, has the events of the tool, and ends with the answer's body and whether it was replayed."""
    async with serving(echo) as server:
        plain = await server.call("echo", arguments={"text": "hi"})
        answer = await server.call("echo", EVENTS, arguments={"text": "hi"})
    events = parse(answer.body)
    assert [kind for kind, _, _ in events] == [
        "execution.started", "tool.started", "tool.completed", "execution.completed",
    ]  # fmt: skip
    assert [seq for _, _, seq in events] == [0, 1, 2, 3]
    last = events[-1][1]
    assert {**last, "execution_id": ""} == {**plain.json, "execution_id": "", "replayed": False}


async def test_headers_of_every_stream() -> None:
    """First answers, replays and failures all instruct proxies not to hold anything back."""
    async with serving(echo, fail) as server:
        first = await server.call("echo", EVENTS, request_id="r")
        replay = await server.call("echo", EVENTS, request_id="r")
        failure = await server.call("fail", EVENTS, arguments={"code": "X", "category": "conflict"})
    for answer in (first, replay, failure):
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        assert "content-length" not in answer.headers
    assert [kind for kind, _, _ in parse(replay.body)] == ["execution.started", "execution.completed"]
    assert parse(replay.body)[-1][1]["replayed"] is True
    assert parse(failure.body)[-1][1]["error"]["code"] == "X"


async def test_refusals_of_the_engine_are_streams_too() -> None:
    """An unknown tool is a stream with status 200 that ends with the error."""
    async with serving(echo) as server:
        answer = await server.call("ecko", EVENTS)
    assert answer.status == 200
    assert parse(answer.body)[-1][1]["error"]["code"] == "TOOL_NOT_FOUND"


async def test_bad_requests_are_json() -> None:
    """What is no request gets the plain 400, whatever the client accepts."""
    async with serving(echo) as server:
        answer = await server.call("echo", EVENTS, context={})
    assert (answer.status, answer.headers["content-type"]) == (400, JSON)


async def test_progress_and_parts() -> None:
    """Progress reports and parts of the result arrive as events; no part is lost."""
    async with serving(progress, parts) as server:
        reports = parse((await server.call("progress", EVENTS, arguments={"count": 3})).body)
        pieces = parse((await server.call("parts", EVENTS, arguments={"count": 50, "size": 3})).body)
    newest = [data for kind, data, _ in reports if kind == "tool.progress"][-1]
    assert {"progress": 3, "total": 3, "message": "step"}.items() <= newest.items()
    assert sum(kind == "tool.progress" and data["partial"] == "xxx" for kind, data, _ in pieces) == 50


async def test_the_first_bytes_come_before_the_tool_has_ended() -> None:
    """A stream begins at once; the connection can be used again after it."""
    async with serving(sleep, echo) as server, server.client() as client:
        with trio.fail_after(5):
            await start(client, "sleep", seconds=0.05)
            assert b"execution.started" in await client.chunk()
            await client.until(b"\r\n0\r\n\r\n")
            assert (await client.call("echo")).status == 200


async def test_heartbeats() -> None:
    """Silence is filled with comments, which do not extend the deadline."""
    async with serving(sleep, http={"heartbeat_secs": 0.02}) as server:
        answer = await server.call("sleep", EVENTS, arguments={"seconds": 60}, timeout_ms=200)
    assert answer.body.count(event_response.HEARTBEAT) >= 2
    assert parse(answer.body)[-1][1]["error"]["code"] == "TIMEOUT"


async def test_no_line_separators_in_data() -> None:
    """Characters at which some readers split a line are escaped, and arrive unchanged."""
    async with serving(echo) as server:
        answer = await server.call("echo", EVENTS, arguments={"text": "a\u2028b\u2029c\u0085d\r\ne"})
    assert parse(answer.body)[-1][1]["data"] == "a\u2028b\u2029c\u0085d\r\ne"
    assert not any(mark in answer.body.decode() for mark in "\u2028\u2029\u0085\r")


async def test_a_reader_that_stops_is_cut_off() -> None:
    """A client that takes nothing for the time limit loses its connection, and its execution is cancelled."""
    sent = 0
    started = trio.Event()

    @tool(effect="none", parallel_safe=True, register=False)
    async def chatter(ctx: AgentContext) -> None:
        """Never stop."""
        nonlocal sent
        started.set()
        while True:
            await ctx.progress.partial("x" * 50_000)
            sent += 50_000

    async with serving(chatter, http={"write_timeout_secs": 0.2}) as server, server.client() as client:
        await start(client, "chatter")
        with trio.fail_after(10):
            await started.wait()
            await server.engine.wait_idle()
        assert sent < 32_000_000  # what the kernel takes, and our own bounds; not all that the tool could make
        assert server.engine.audit.newest()[0].cause == "disconnect"


async def test_a_large_answer_reaches_a_slow_reader() -> None:
    """The time limit of a write counts from the last progress, so a reader that only is slow gets everything."""
    async with serving(big, http={"write_timeout_secs": 1.0}) as server, server.client() as client:
        with trio.fail_after(30):
            answer = await client.call("big", arguments={"size": 7_000_000})
        assert len(answer.json["data"]) == 7_000_000


def test_one_line() -> None:
    """Line ends between the tokens of a document become spaces."""
    assert one_line(b'{\r\n"a": 1\n}') == b'{  "a": 1 }'


async def test_http_1_0() -> None:
    """A client of HTTP/1.0 gets the same events, up to the connection's end."""
    body = b'{"tool":"echo"}'
    async with serving(echo) as server, server.client() as client:
        head = (
            f"POST /agent/execute HTTP/1.0\r\nhost: localhost\r\naccept: text/event-stream\r\ncontent-type: {JSON}\r\n"
        )
        await client.send(head.encode() + b"content-length: %d\r\n\r\n%b" % (len(body), body))
        status, headers = await client.head()
        assert (status, "transfer-encoding" in headers) == (200, False)
        received = client.buffer
        while data := await client.stream.receive_some(65536):
            received += data
    assert [kind for kind, _, _ in parse(received)][-1] == "execution.completed"
