"""A client that goes away: before, during and after the first byte, however it goes."""

from __future__ import annotations

import json

import pytest
import trio

from carmy_engine import AgentContext, Cause, tool
from tests.http.tools import echo
from tests.support.http import JSON, Client, Running, render, serving

NOTICED = 5.0
"""Seconds. The promise is one; the machines that run this are slow at times, and nothing here waits for it to pass."""


class Silent:
    """A tool that says nothing and tells when it starts and what cancelled it."""

    def __init__(self) -> None:
        self.started = trio.Event()
        self.ended = trio.Event()
        self.cause: Cause | None = None

        @tool(effect="write", parallel_safe=True, register=False)
        async def silent(ctx: AgentContext) -> str:
            """Wait for ever."""
            self.started.set()
            try:
                await trio.sleep_forever()
            finally:
                self.cause = ctx.cancellation.cause
                self.ended.set()

        self.tool = silent


def request(*, stream: bool) -> bytes:
    headers = {"content-type": JSON, "accept": "text/event-stream" if stream else JSON}
    return render("POST", "/agent/execute", headers, json.dumps({"tool": "silent", "request_id": "r"}).encode())


async def leave(client: Client, how: str) -> None:
    if how == "fin":
        await client.stream.aclose()
    elif how == "rst":
        client.reset()
    elif how == "half-close":
        await client.stream.send_eof()
    else:
        await client.send(render("GET", "/health"))
        await client.stream.aclose()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["fin", "rst", "half-close", "pipelined"])
async def test_leaving_cancels(stream: bool, how: str) -> None:
    """A client that closes, resets, half-closes, or closes behind a pipelined request, cancels a silent tool."""
    silent = Silent()
    async with serving(silent.tool, echo) as server, server.client() as client:
        with trio.fail_after(NOTICED):
            await client.send(request(stream=stream))
            await silent.started.wait()
            await leave(client, how)
            await silent.ended.wait()
            await server.engine.wait_idle()
            assert silent.cause == Cause.DISCONNECT
            record = server.engine.audit.newest()[0]
            assert (record.cause, record.transport) == (Cause.DISCONNECT, "http")
            assert (await server.call("echo")).status == 200


async def test_a_retry_is_told_that_the_end_is_uncertain() -> None:
    """A write that its client left is interrupted: the same request_id is answered with uncertainty and the cause."""
    silent = Silent()
    async with serving(silent.tool) as server, server.client() as client:
        with trio.fail_after(NOTICED):
            await client.send(request(stream=False))
            await silent.started.wait()
            client.reset()
            await server.engine.wait_idle()
            answer = await server.call("silent", request_id="r")
    assert (answer.status, answer.code) == (409, "EXECUTION_UNCERTAIN")
    assert answer.json["error"]["details"]["state"] == "interrupted"


async def test_leaving_with_half_a_body() -> None:
    """A client that leaves in the middle of its body runs nothing and leaves nothing behind."""
    async with serving(echo) as server:
        async with server.client() as client:
            await client.send(b"POST /agent/execute HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
            await client.send(b"content-length: 100\r\n\r\n{")
        with trio.fail_after(NOTICED):
            assert (await server.call("echo")).status == 200
        assert [record.tool for record in server.engine.audit.newest()] == ["echo"]


async def drop(server: Running, number: int) -> None:
    """One call that is dropped, in one of many states."""
    with trio.CancelScope() as scope:
        async with server.client() as client:
            await client.send(request(stream=bool(number % 2))[: None if number % 3 else 60])
            if number % 3:
                for _ in range(number % 7):
                    await trio.lowlevel.checkpoint()
            scope.cancel()


async def test_nothing_is_left_of_many_dropped_calls() -> None:
    """After hundreds of calls that were dropped in any state, nothing runs and no connection's task is left."""

    @tool(effect="read", parallel_safe=True, register=False)
    async def silent() -> None:
        """Wait for ever."""
        await trio.sleep_forever()

    async with serving(silent, echo) as server:
        await server.call("echo")
        with trio.fail_after(50):
            for number in range(300):
                await drop(server, number)
            while server.engine.statistics().running or trio.lowlevel.current_statistics().tasks_living > 60:
                await server.call("echo")  # time passes while the server works
        assert (await server.call("echo")).status == 200
