"""Requests of HTTP/2 that break a rule: each gets an answer of its own, and the connection goes on."""

from __future__ import annotations

import json

import pytest
import trio
from h2.errors import ErrorCodes
from hpack import Encoder
from hyperframe.frame import ContinuationFrame, DataFrame, HeadersFrame

from tests.http.tools import echo
from tests.support.http2 import Http2Client, http2
from tests.support.tls import serving_tls

CALL = json.dumps({"tool": "echo", "arguments": {"text": "hi"}}).encode()
GET = [(":method", "GET"), (":scheme", "https"), (":authority", "AUTHORITY"), (":path", "/health")]


def head(*removed: str, **changed: str) -> list[tuple[str, str]]:
    """The headers of a good request, without some, and with others changed."""
    return [(name, changed.get(name[1:], value)) for name, value in GET if name not in removed]


async def send_block(client: Http2Client, headers: list[tuple[str | bytes, str | bytes]]) -> int:
    """Send headers as they are; return the number of the stream."""
    number = client.h2.get_next_available_stream_id()
    authority = client.authority.encode()
    block = Encoder().encode(
        [(name, authority if value == "AUTHORITY" else value, True) for name, value in headers]  # type: ignore[misc]
    )
    # The library learns of the stream, but its own frame is not sent.
    client.h2.send_headers(number, head(), end_stream=True)
    client.h2.data_to_send()
    first, last = HeadersFrame(number, flags=["END_STREAM"]), ContinuationFrame(number, flags=["END_HEADERS"])
    data = first.serialize()
    for start in range(0, len(block), 16_000):
        piece = ContinuationFrame(number)
        piece.data = block[start : start + 16_000]
        data += piece.serialize()
    await client.send_raw(data + last.serialize())
    return number


@pytest.mark.parametrize(
    "headers",
    [
        head(path="/caf\xe9"),
        [*head(":path"), (":path", b"/\xff")],
        head(path="health"),
        head(path=""),
        head(path="http://127.0.0.1/health"),
        head(":path"),
        head(":method"),
        head(":scheme"),
        head(":authority"),
        head(method="CONNECT"),
        head(":path", ":scheme", method="CONNECT"),
        [*head(method="CONNECT"), (":protocol", "websocket")],
        [*head(), (":path", "/health")],
        [("accept", "*/*"), *head()],
        [*head(), (":unknown", "x")],
        [*head(), ("host", "other.example")],
        [*head(), ("host", "AUTHORITY"), ("host", "other.example")],
        [*head(), ("Accept", "*/*")],
        [*head(), ("connection", "close")],
        [*head(), ("transfer-encoding", "chunked")],
        [*head(), ("upgrade", "websocket")],
        [*head(), ("te", "gzip")],
        [*head(), ("accept", "a\r\nx: y")],
        [*head(), ("accept", "a\0b")],
        [*head(), ("accept", " a")],
        [*head(), ("a b", "c")],
        [*head(), ("", "c")],
        [*head(), ("content-length", "5")],
        [*head(), ("content-length", "0"), ("content-length", "0")],
        [*head(), ("content-length", "-1")],
        [*head(method="G T")],
        [*head(), *((f"x-{number}", "y") for number in range(200))],
        [*head(), ("x-long", "y" * 40_000)],
    ],
)
async def test_a_malformed_request_is_refused(headers: list[tuple[str | bytes, str | bytes]]) -> None:
    """It is answered with an error of the client, and the next request on the connection is answered well."""
    async with serving_tls(echo) as secured, http2(secured) as client:
        with trio.fail_after(20):
            number = await send_block(client, headers)
            status, body = await client.answer(number)
            assert status in {400, 431}
            assert body["error"]["code"] == "INVALID_REQUEST"
            assert (await client.answer(await send_block(client, [*GET])))[0] == 200


async def test_a_client_cannot_name_another_stream() -> None:
    """The header that carries the stream's number inside the server is not taken from a client."""
    async with serving_tls(echo) as secured, http2(secured) as client:
        with trio.fail_after(20):
            number = await client.ask(headers=[("carmy-http2-stream", "99")])
            assert (await client.answer(number))[0] == 200


@pytest.mark.parametrize("sent", [3, 50])
async def test_a_body_of_another_length_is_refused(sent: int) -> None:
    """A body that is shorter or longer than Content-Length resets its stream, and no other one."""
    async with serving_tls(echo) as secured, http2(secured) as client:
        with trio.fail_after(20):
            headers = [("content-type", "application/json"), ("content-length", str(len(CALL)))]
            number = await client.ask("POST", "/agent/execute", headers=headers, ends=False)
            frame = DataFrame(number, flags=["END_STREAM"])
            frame.data = b" " * (sent if sent < len(CALL) else len(CALL) + sent)
            await client.send_raw(frame.serialize())
            await client.until_reset(number)
            assert client.resets[number] == ErrorCodes.PROTOCOL_ERROR
            assert (await client.answer(await client.ask()))[0] == 200


async def test_trailers_and_padding_are_accepted() -> None:
    """Trailers are dropped, and padding is not part of the body."""
    async with serving_tls(echo) as secured, http2(secured) as client:
        with trio.fail_after(20):
            number = await client.ask(
                "POST", "/agent/execute", headers=[("content-type", "application/json")], ends=False
            )
            client.h2.send_data(number, CALL[:10], pad_length=100)
            client.h2.send_data(number, CALL[10:], pad_length=0)
            client.h2.send_headers(number, [("x-checksum", "1")], end_stream=True)
            await client.flush()
            status, body = await client.answer(number)
            assert (status, body["data"]) == (200, "hi")


async def test_a_client_that_waits_for_100_gets_it() -> None:
    """``Expect: 100-continue`` is answered once the body is wanted."""
    async with serving_tls(echo) as secured, http2(secured) as client:
        with trio.fail_after(20):
            headers = [("content-type", "application/json"), ("expect", "100-continue")]
            number = await client.ask("POST", "/agent/execute", headers=headers, ends=False)
            await client.until(
                lambda: any(type(event).__name__ == "InformationalResponseReceived" for event in client.events)
            )
            client.h2.send_data(number, CALL, end_stream=True)
            await client.flush()
            status, body = await client.answer(number)
            assert (status, body["data"]) == (200, "hi")


async def test_frames_of_unknown_types_are_ignored() -> None:
    """Unknown frames and PRIORITY change nothing (RFC 9113, 4.1, 5.3)."""
    async with serving_tls(echo) as secured, http2(secured) as client:
        with trio.fail_after(20):
            await client.send_raw(b"\0\0\x05\xee\0\0\0\0\x07hello" + b"\0\0\x05\x02\0\0\0\0\x09\0\0\0\x09\x10")
            assert (await client.answer(await client.ask()))[0] == 200
