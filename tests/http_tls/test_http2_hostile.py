"""Attacks on HTTP/2: each ends at most its own connection, costs a bounded amount, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest
import trio
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from carmy_engine import Cause
from carmy_http.hypercorn import http2_stream
from tests.http.tools import big, echo, parts
from tests.http_tls.test_http2 import EVENTS, Gate
from tests.support.http2 import Http2Client, http2
from tests.support.tls import Secured, serving_tls


def get_block(authority: str, *more: tuple[str, str]) -> bytes:
    """A header block that leaves the table of the server alone."""
    pairs = [(":method", "GET"), (":scheme", "https"), (":authority", authority), (":path", "/health"), *more]
    return _block(pairs)


def post_block(authority: str) -> bytes:
    """The same, of a request that waits for its body."""
    path, kind = (":path", "/agent/execute"), ("content-type", "application/json")
    return _block([(":method", "POST"), (":scheme", "https"), (":authority", authority), path, kind])


def _block(pairs: list[tuple[str, str]]) -> bytes:
    return Encoder().encode([(name, value, True) for name, value in pairs])


def frame(kind: type[Frame], number: int, data: bytes = b"", *flags: str) -> bytes:
    made = kind(number, flags=flags)
    if data:
        made.data = data  # type: ignore[attr-defined]
    return made.serialize()


def resets(client: Http2Client) -> bytes:
    """Requests that are cancelled at once."""
    block = get_block(client.authority)
    return b"".join(
        frame(HeadersFrame, number, block, "END_HEADERS", "END_STREAM") + RstStreamFrame(number, 8).serialize()
        for number in range(1, 2001, 2)
    )


def malformed(client: Http2Client) -> bytes:
    """Requests that the server has to refuse."""
    block = get_block(client.authority, ("connection", "close"))
    return b"".join(frame(HeadersFrame, number, block, "END_HEADERS") for number in range(1, 2001, 2))


def too_many(client: Http2Client) -> bytes:
    """Requests at one time, far beyond the limit."""
    block = post_block(client.authority)
    return b"".join(frame(HeadersFrame, number, block, "END_HEADERS") for number in range(1, 2001, 2))


def continuations(client: Http2Client) -> bytes:
    """A header block without an end."""
    return frame(HeadersFrame, 1, get_block(client.authority)) + frame(ContinuationFrame, 1, b"") * 5000


def long_block(client: Http2Client) -> bytes:
    """A header block that is longer than any."""
    return frame(HeadersFrame, 1, b"\0") + frame(ContinuationFrame, 1, b"\0" * 16_000) * 10


def bomb(client: Http2Client) -> bytes:
    """A block of references to one long header (the HPACK bomb)."""
    entry = Encoder().encode([("x", "y" * 3000)])
    return frame(HeadersFrame, 1, get_block(client.authority) + entry + b"\xbe" * 12_000, "END_HEADERS", "END_STREAM")


FLOODS: list[Callable[[Http2Client], bytes]] = [
    resets,
    malformed,
    too_many,
    continuations,
    long_block,
    bomb,
    lambda _: SettingsFrame(0).serialize() * 3000,
    lambda _: PingFrame(0, b"12345678").serialize() * 3000,
    lambda _: PriorityFrame(1, depends_on=3).serialize() * 3000,
    lambda _: b"\0\0\0\xee\0\0\0\0\0" * 3000,
    lambda client: frame(HeadersFrame, 1, get_block(client.authority), "END_HEADERS") + frame(DataFrame, 1) * 3000,
    lambda client: (
        frame(HeadersFrame, 1, get_block(client.authority), "END_HEADERS") + RstStreamFrame(1, 8).serialize() * 3000
    ),
]

VIOLATIONS: list[Callable[[Http2Client], bytes]] = [
    lambda _: b"\xff\xff\xff\x00\0\0\0\0\x01",  # a frame of 16 MiB
    lambda _: frame(DataFrame, 1, b"x"),  # on a stream that has not begun
    lambda _: WindowUpdateFrame(1, 5).serialize(),
    lambda _: WindowUpdateFrame(0, 2**31 - 1).serialize() * 2,
    lambda _: frame(ContinuationFrame, 1, b"x", "END_HEADERS"),
    lambda client: frame(HeadersFrame, 2, get_block(client.authority), "END_HEADERS"),
    lambda client: frame(HeadersFrame, 1, get_block(client.authority)) + PingFrame(0, b"12345678").serialize(),
    lambda _: PushPromiseFrame(1, 2).serialize(),
    lambda _: frame(HeadersFrame, 1, b"\xff\xff\xff\xff\xff\xff", "END_HEADERS"),
    lambda _: frame(HeadersFrame, 1, b"\x3f\xff\xff\xff\x7f", "END_HEADERS"),  # a table of 256 MiB
    lambda _: SettingsFrame(0, settings={SettingCodes.MAX_FRAME_SIZE: 1}).serialize(),
    lambda _: b"\0\0\x01\x04\0\0\0\0\0x",  # SETTINGS that are no multiple of 6 bytes
    lambda _: b"\0\0\x01\x00\x08\0\0\0\x01\xff",  # padding longer than its frame
    lambda _: GoAwayFrame(0, 0, 0).serialize(),
]


async def leave_and_check(secured: Secured) -> None:
    """The server still answers others."""
    async with http2(secured) as other:
        assert (await other.answer(await other.ask()))[0] == 200
    await secured.server.engine.wait_idle()


async def send_and_read(client: Http2Client, data: bytes) -> None:
    """Send everything, or as much as the server takes, and read to the end."""
    async with trio.open_nursery() as nursery:

        async def write() -> None:
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await client.send_raw(data)

        nursery.start_soon(write)
        received = b""
        try:
            while chunk := await client.stream.receive_some(65536):
                received += chunk
        except trio.BrokenResourceError:
            pass
        client._without_goaways(received)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("flood", FLOODS, ids=range(len(FLOODS)))
async def test_a_flood_ends_its_connection(flood: Callable[[Http2Client], bytes]) -> None:
    """The connection is closed with ENHANCE_YOUR_CALM or the error that fits, and others go on."""
    async with serving_tls(echo) as secured:
        with trio.fail_after(40):
            async with http2(secured) as client:
                await send_and_read(client, flood(client))
                assert client.goaways
                assert client.goaways[-1].error_code in {ErrorCodes.ENHANCE_YOUR_CALM, ErrorCodes.COMPRESSION_ERROR}
            await leave_and_check(secured)


@pytest.mark.parametrize("violation", VIOLATIONS, ids=range(len(VIOLATIONS)))
async def test_a_violation_ends_its_connection(violation: Callable[[Http2Client], bytes]) -> None:
    """Bytes that leave the state of the connection in doubt end it, and no other one."""
    async with serving_tls(echo) as secured:
        with trio.fail_after(40):
            async with http2(secured) as client:
                await send_and_read(client, violation(client))
            await leave_and_check(secured)


async def test_noise_ends_its_connection() -> None:
    """Mutations of good frames never harm another connection."""
    chance = random.Random(9)
    async with serving_tls(echo) as secured:
        with trio.fail_after(120):
            for _ in range(60):
                async with http2(secured) as client:
                    data = bytearray(
                        frame(HeadersFrame, 1, get_block(client.authority), "END_HEADERS")
                        + frame(DataFrame, 1, b"x" * 50, "END_STREAM")
                        + SettingsFrame(0, settings={4: 1000}).serialize()
                        + WindowUpdateFrame(1, 9).serialize()
                        + RstStreamFrame(1, 8).serialize()
                    )
                    for _ in range(chance.randrange(1, 6)):
                        data[chance.randrange(len(data))] = chance.randrange(256)
                    await client.send_raw(bytes(data[: chance.randrange(1, len(data) + 1)]))
            await leave_and_check(secured)


async def test_a_body_that_is_not_read_holds_up_no_other_stream() -> None:
    """Bodies that stall, up to their windows, leave other requests on the connection alone."""
    gate = Gate()
    async with serving_tls(gate.tool, echo) as secured, http2(secured) as client:
        with trio.fail_after(20):
            await client.until(lambda: client.h2.outbound_flow_control_window > 1_000_000)
            for _ in range(10):  # the head wants no body, so nothing reads it until the answer
                number = await client.ask(
                    "POST", "/agent/execute", headers=[("content-type", "application/json")], ends=False
                )
                for _ in range(4):
                    client.h2.send_data(number, b" " * 16_000)
                await client.flush()
            status, body = await client.answer(await client.call("echo", text="through"))
            assert (status, body["data"]) == (200, "through")


async def test_a_client_that_gives_no_window_is_reset() -> None:
    """An answer that makes no progress is given up; other streams of the connection go on."""
    async with serving_tls(big, echo, http={"write_timeout_secs": 0.3}) as secured, http2(secured) as client:
        with trio.fail_after(20):
            client.grants_windows = False
            number = await client.call("big", size=1_000_000)
            await client.until_reset(number)
            assert client.resets[number] == ErrorCodes.CANCEL
            client.h2.increment_flow_control_window(1_000_000)
            await client.flush()
            assert (await client.answer(await client.ask()))[0] == 200


async def test_a_client_that_takes_nothing_is_closed() -> None:
    """A client with wide windows that does not read its socket is closed, and its calls are cancelled."""
    async with serving_tls(parts, echo, http={"write_timeout_secs": 0.3}) as secured:
        with trio.fail_after(40):
            async with http2(secured) as client:
                client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
                client.h2.increment_flow_control_window(2**30)
                await client.call("parts", accept=EVENTS, count=1_000_000, size=10_000)
                await client.until(lambda: bool(client.status))
                await secured.server.engine.wait_idle()
            assert secured.server.engine.audit.newest()[0].cause == Cause.DISCONNECT
            await leave_and_check(secured)


async def test_silence_is_closed_in_time() -> None:
    """A preface, a header block and a next request that do not come end the connection."""
    async with serving_tls(echo, http={"header_timeout_secs": 0.3, "keep_alive_secs": 0.3}) as secured:
        with trio.fail_after(20):
            for data in [b"", frame(HeadersFrame, 1, b"\x82"), b"\0\0\x08\x06"]:
                async with http2(secured) as client:
                    await client.until(lambda: client.h2.outbound_flow_control_window > 1_000_000)
                    if data:
                        await client.send_raw(data)
                    await client.until(lambda: False)
                    assert client.goaways[-1].error_code == 0
            await leave_and_check(secured)


async def test_cancelled_calls_keep_their_place_until_they_have_ended() -> None:
    """No more executions run for one connection than its streams, however fast it cancels."""
    gate = Gate()
    async with serving_tls(gate.tool) as secured, http2(secured) as client:
        with trio.fail_after(20):
            numbers = [await client.call("gate", accept=EVENTS) for _ in range(http2_stream.MAX_STREAMS)]
            await client.until(lambda: len(client.status) == len(numbers))
            client.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 1000
            client.h2.remote_settings.acknowledge()
            refused = await client.ask()
            await client.until_reset(refused)
            assert client.resets[refused] == ErrorCodes.REFUSED_STREAM
            gate.open.set()
            await client.until(lambda: client.ended.issuperset(numbers))
