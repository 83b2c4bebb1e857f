"""Requests that are damaged at random, and bytes of any kind: every answer is valid, and the server lives."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.hostile.siege import HEALTH, LAST, besieged, call, converse, front_end, no_fault, parse
from tests.hostile.tools import ALL
from tests.support.http import render

__all__ = ["front_end", "no_fault"]

FAST = {"header_timeout_secs": 0.3, "body_timeout_secs": 0.3, "keep_alive_secs": 0.3}
MUTANTS = 500
TOGETHER = 50


CHUNKED = {"content-type": "application/json", "transfer-encoding": "chunked"}
VALID = [
    HEALTH,
    call("echo", text="hello"),
    call("echo", {"accept": "text/event-stream"}, text="hello"),
    call("quick", {"idempotency-key": "a"}),
    render("POST", "/agent/execute", CHUNKED) + b'8\r\n{"tool":\r\n7;x=y\r\n"echo"}\r\n0\r\nx-trailer: 1\r\n\r\n',
    render("GET", "/agent/tools", {"if-none-match": '"a", W/"b"', "accept": "application/json;q=0.5, */*"}),
    render("GET", "/.well-known/agent", {"origin": "http://localhost", "authorization": "Bearer abc"}),
    render(
        "POST", "/agent/execute", {"content-type": "application/json", "expect": "100-continue"}, b'{"tool":"echo"}'
    ),
    render("GET", "/agent/executions/exec_00000000-0000-4000-8000-000000000000"),
    render("DELETE", "/agent/executions/exec_00000000-0000-4000-8000-000000000000"),
    render("OPTIONS", "/agent/execute", {"origin": "http://a.example", "access-control-request-method": "POST"}),
    render(
        "GET",
        "/health",
        {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="},
    ),
    render("GET", "/health", {"connection": "upgrade, http2-settings", "upgrade": "h2c", "http2-settings": "AAMAAABk"}),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
]
WORDS = [
    b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\x00", b":", b" ", b"\t", b"0", b"-1", b"chunked", b"\xff\xfe", b"content-length: 5\r\n",
    b"transfer-encoding: chunked\r\n", b"upgrade: websocket\r\n", b"HTTP/1.0", b'"', b"{", b"%00", b";", b",", b"9" * 30,
]  # fmt: skip


def flip(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def replace(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] = rng.randrange(256)


def truncate(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def cut_out(rng: random.Random, data: bytearray) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.randint(1, 20)]


def duplicate(rng: random.Random, data: bytearray) -> None:
    start = rng.randrange(len(data))
    part = data[start : start + rng.randint(1, 60)]
    data[start:start] = part * rng.randint(1, 3)


def insert(rng: random.Random, data: bytearray) -> None:
    position = rng.randrange(len(data) + 1)
    data[position:position] = rng.choice(WORDS)


def splice(rng: random.Random, data: bytearray) -> None:
    other = rng.choice(VALID)
    data[rng.randrange(len(data)) :] = other[rng.randrange(len(other)) :]


def shuffle_lines(rng: random.Random, data: bytearray) -> None:
    lines = bytes(data).split(b"\r\n")
    rng.shuffle(lines)
    data[:] = b"\r\n".join(lines)


MUTATIONS: list[Callable[[random.Random, bytearray], None]] = [
    flip, replace, truncate, cut_out, duplicate, insert, splice, shuffle_lines
]  # fmt: skip


def mutant(seed: int) -> bytes:
    """A valid request that was damaged; the same for the same seed."""
    rng = random.Random(seed)
    data = bytearray(rng.choice(VALID))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if data:
            rng.choice(MUTATIONS)(rng, data)
    return bytes(data)


@pytest.mark.parametrize("first", range(0, MUTANTS, TOGETHER))
async def test_mutants(first: int) -> None:
    """Damaged requests, followed by an honest one, get valid answers with documented statuses, or a close."""
    async with besieged(*ALL, http=FAST) as siege:
        statuses: list[int] = []

        async def attack(seed: int) -> None:
            async with siege.server.client() as client:
                answers = parse(await converse(client, mutant(seed) + LAST))
                statuses.extend(answer.status for answer in answers)

        async with trio.open_nursery() as nursery:
            for seed in range(first, first + TOGETHER):
                nursery.start_soon(attack, seed)
        assert 500 not in statuses
        assert 400 in statuses
        assert 200 in statuses


async def test_mutants_in_one_connection_each() -> None:
    """Damaged requests that are cut into packets anywhere, and cut off by a reset, leave nothing behind."""
    rng = random.Random(1)
    async with besieged(*ALL, http=FAST) as siege:

        async def attack(seed: int, data: bytes) -> None:
            async with siege.server.client() as client:
                try:
                    for start in range(0, len(data), 7):
                        await client.send(data[start : start + 7])
                        await trio.lowlevel.checkpoint()
                except trio.BrokenResourceError:
                    return
                client.reset()

        async with trio.open_nursery() as nursery:
            for seed in range(200):
                data = mutant(seed)
                nursery.start_soon(attack, seed, data[: rng.randrange(len(data) + 1)])


def chunks_of(data: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    return st.lists(data, min_size=1, max_size=6)


PIECES = st.one_of(
    st.binary(max_size=80),
    st.sampled_from(WORDS),
    st.sampled_from(VALID),
    st.builds(mutant, st.integers(1000, 100_000)),
    st.builds(
        lambda data, start, size: data[start : start + size],
        st.sampled_from(VALID),
        st.integers(0, 80),
        st.integers(1, 80),
    ),
)


@example([b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n", b"\r\n"])
@example([b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", b"\r"])
@pytest.mark.timeout(600)
@given(chunks_of(PIECES))
@settings(suppress_health_check=list(HealthCheck))
def test_any_bytes(pieces: list[bytes]) -> None:
    """Whatever bytes arrive, however cut, only valid HTTP answers go out, or the connection closes; the server lives."""

    async def attack() -> None:
        http = {"header_timeout_secs": 0.02, "body_timeout_secs": 0.02}
        async with besieged(*ALL, http=http) as siege, siege.server.client() as client:
            answers = parse(await converse(client, *[piece for piece in pieces if piece], LAST))
            assert all(answer.status != 500 for answer in answers)

    trio.run(attack)
