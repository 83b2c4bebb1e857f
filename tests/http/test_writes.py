"""How answers leave: at once, and whole. An answer in two packets may wait 40 ms for the client to acknowledge the first."""

from __future__ import annotations

import socket
import struct
import sys

import pytest
import trio

from carmy_engine import HttpSettings, Settings
from carmy_net import Server, open_listeners
from tests.http.tools import echo, sleep
from tests.support.http import JSON, Client, render, serving

DATA_SEGMENTS_IN = slice(152, 156)
"""Of ``struct tcp_info``: ``tcpi_data_segs_in``."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="the system does not count packets of a connection")


def packets(client: Client) -> int:
    """How many packets with data have come on a connection."""
    info = client.stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, DATA_SEGMENTS_IN.stop)
    (count,) = struct.unpack("=I", info[DATA_SEGMENTS_IN])
    return count


@linux
async def test_an_answer_is_one_packet() -> None:
    """Head and body of an answer leave together: results, refusals, documents, and what is no request."""
    async with serving(echo) as server, server.client() as client:
        with trio.fail_after(5):
            for count, send in enumerate(
                [
                    client.call("echo", arguments={"text": "a"}),
                    client.call("echo", arguments={"text": 1}),
                    client.call("nobody"),
                    client.request("GET", "/health"),
                    client.request("GET", "/agent/tools"),
                    client.request("GET", "/nowhere"),
                    client.request("POST", "/agent/execute", {"content-type": "text/plain"}, b"hello"),
                ],
                1,
            ):
                await send
                assert packets(client) == count


@linux
async def test_the_head_of_a_stream_leaves_with_its_first_event() -> None:
    """A stream begins with one packet for its head and its first event; a silent tool adds one event at most."""
    async with serving(sleep) as server, server.client() as client:
        with trio.fail_after(5):
            headers = {"content-type": JSON, "accept": "text/event-stream"}
            body = b'{"tool":"sleep","arguments":{"seconds":30}}'
            await client.send(render("POST", "/agent/execute", headers, body))
            await client.head()
            assert client.buffer  # of the first event, in the same packet
            while b"tool.started" not in await client.chunk():
                pass
            assert packets(client) <= 2


async def test_small_packets_do_not_wait() -> None:
    """The kernel is configured for every connection not to hold back small packets."""
    seen: list[int] = []

    class Peer:
        def __init__(self, stream: trio.SocketStream) -> None:
            self._stream = stream

        async def run(self) -> None:
            seen.append(self._stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            await self._stream.aclose()

        def drain(self) -> None:
            pass

    stopping, stopped = trio.Event(), trio.Event()
    (listener,) = await open_listeners(Settings(address="127.0.0.1:0"), authenticated=False)
    port = listener.socket.getsockname()[1]
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Server(Peer, HttpSettings()).run, [listener], stopping, stopped, lambda: None)
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                assert await stream.receive_some() == b""
            stopping.set()
            stopped.set()
    assert [bool(option) for option in seen] == [True]
