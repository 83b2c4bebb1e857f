"""HTTP/2 over TLS: answers, streams of events, disconnects, bodies and the drain."""

from __future__ import annotations

import contextlib
import json

import h2.errors
import pytest
import trio

from carmy_engine import AgentContext, Cause, tool
from tests.http.tools import big, echo, progress
from tests.support.http2 import JSON_TYPE, http2
from tests.support.tls import serving_tls

CALL = json.dumps({"tool": "echo", "arguments": {"text": "hi"}}).encode()
EVENTS = "text/event-stream"


class Gate:
    """A tool that waits to be let through, and keeps the cause of its end."""

    def __init__(self) -> None:
        self.started = trio.Event()
        self.open = trio.Event()
        self.ended = trio.Event()
        self.cause: Cause | None = None

        @tool(effect="read", parallel_safe=True, register=False)
        async def gate(ctx: AgentContext) -> str:
            """Wait."""
            self.started.set()
            try:
                await self.open.wait()
                return "through"
            finally:
                self.cause = ctx.cancellation.cause
                self.ended.set()

        self.tool = gate


async def test_calls_of_one_connection_run_side_by_side() -> None:
    """A call that waits does not hold up later ones, and each stream gets its own answer."""
    gate = Gate()
    async with serving_tls(gate.tool, echo) as secured, http2(secured) as client:
        with trio.fail_after(20):
            waiting = await client.call("gate")
            await gate.started.wait()
            others = [await client.call("echo", text=str(number)) for number in range(20)]
            for index, number in enumerate(others):
                status, body = await client.answer(number)
                assert (status, body["data"]) == (200, str(index))
            gate.open.set()
            status, body = await client.answer(waiting)
            assert (status, body["data"]) == (200, "through")
            assert not client.goaways


async def test_a_large_answer_arrives_whole() -> None:
    """An answer that is larger than all windows and frames arrives byte for byte."""
    async with serving_tls(big) as secured, http2(secured) as client:
        with trio.fail_after(20):
            _, body = await client.answer(await client.call("big", size=1_000_000))
            assert body["data"] == "x" * 1_000_000


async def test_head_has_no_body() -> None:
    """HEAD is answered with headers alone."""
    async with serving_tls(echo) as secured, http2(secured) as client:
        with trio.fail_after(20):
            number = await client.ask("HEAD", "/health")
            assert await client.answer(number) == (200, None)


async def test_events_are_sent_as_they_happen() -> None:
    """A stream of events has begun while its tool still waits."""
    gate = Gate()
    async with serving_tls(gate.tool) as secured, http2(secured) as client:
        with trio.fail_after(20):
            number = await client.call("gate", accept=EVENTS)
            await client.until(lambda: b"tool.started" in client.bodies.get(number, b""))
            gate.open.set()
            await client.until(lambda: number in client.ended)
            assert b"execution.completed" in client.bodies[number]


@pytest.mark.parametrize("accept", ["application/json", EVENTS])
@pytest.mark.parametrize("how", ["reset", "goaway", "close"])
async def test_a_client_that_leaves_cancels_its_call(how: str, accept: str) -> None:
    """RST_STREAM, GOAWAY and the end of the connection cancel the execution with the cause ``disconnect``."""
    gate = Gate()
    async with serving_tls(gate.tool) as secured:
        with trio.fail_after(20):
            async with http2(secured) as client:
                number = await client.call("gate", accept=accept)
                await gate.started.wait()
                if how == "reset":
                    client.h2.reset_stream(number, h2.errors.ErrorCodes.CANCEL)
                    await client.flush()
                    await gate.ended.wait()
                    assert (await client.answer(await client.ask()))[0] == 200  # the connection lives on
                elif how == "goaway":
                    client.h2.close_connection()
                    await client.flush()
                    await gate.ended.wait()
            await gate.ended.wait()
        assert gate.cause == Cause.DISCONNECT


async def test_a_body_that_goes_on_after_its_answer_is_discarded() -> None:
    """An answer that comes before the end of the body ends the stream with NO_ERROR; what is still sent harms nothing."""
    async with serving_tls(echo) as secured, http2(secured) as client:
        with trio.fail_after(20):
            for _ in range(30):  # altogether more than the window of the connection
                number = await client.ask("POST", "/nowhere", b"x" * 16_000, [JSON_TYPE], ends=False)
                with contextlib.suppress(h2.exceptions.ProtocolError):
                    for _ in range(3):
                        client.h2.send_data(number, b"x" * 16_000)
                await client.flush()
                status, body = await client.answer(number)
                assert (status, body["error"]["code"]) == (404, "INVALID_REQUEST") or status == 404
                await client.until_reset(number)
                assert client.resets[number] == 0
            status, body = await client.answer(await client.call("echo", text="still here"))
            assert (status, body["data"]) == (200, "still here")


async def test_the_drain_lets_running_calls_end() -> None:
    """The drain sends GOAWAY; a running call is answered, and then the connection closes."""
    gate = Gate()
    async with serving_tls(gate.tool, echo) as secured, http2(secured) as client:
        with trio.fail_after(20):
            number = await client.call("gate")
            await gate.started.wait()
            secured.server.engine.stop()
            await client.until(lambda: len(client.goaways) == 2)
            assert [goaway.error_code for goaway in client.goaways] == [0, 0]
            assert client.goaways[-1].last_stream_id == number
            gate.open.set()
            status, body = await client.answer(number)
            assert (status, body["data"]) == (200, "through")
            await client.until(lambda: False)
            assert client.is_closed


async def test_an_idle_connection_ends_when_the_server_drains() -> None:
    """Without a running call, the connection closes soon after the GOAWAY."""
    async with serving_tls(echo) as secured, http2(secured) as client:
        with trio.fail_after(20):
            assert (await client.answer(await client.ask()))[0] == 200
            secured.server.engine.stop()
            await client.until(lambda: False)
            assert client.goaways[-1].error_code == 0


async def test_progress_events_of_many_streams_interleave() -> None:
    """Several streams of events on one connection are all complete."""
    async with serving_tls(progress) as secured, http2(secured) as client:
        with trio.fail_after(30):
            numbers = [await client.call("progress", accept=EVENTS, count=20) for _ in range(10)]
            await client.until(lambda: client.ended.issuperset(numbers))
            for number in numbers:
                assert client.bodies[number].count(b"event: tool.progress") >= 1
                assert b"execution.completed" in client.bodies[number]
