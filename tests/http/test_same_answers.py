"""Both front ends give the same answers, to valid requests, odd ones and damaged ones."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from tests.hostile.siege import LAST, converse, parse
from tests.hostile.test_mutations import VALID, mutant
from tests.http.tools import echo
from tests.support.http import Running, front_end, serving
from tests.support.http_fixtures import FIXTURES, is_refused

SEEDS = 2000
FEWER = 300
TOGETHER = 50
FAST = {"header_timeout_secs": 0.3, "body_timeout_secs": 0.3, "keep_alive_secs": 0.3}
_VARYING = re.compile(rb"exec_[0-9a-f-]{36}|[0-9a-f]{32}(?![0-9a-f])|(?<=_ms\":)[0-9.e-]+")

Said = list[tuple[int, dict[str, str], bytes]]


def request(seed: int) -> bytes:
    """Every fourth is valid, the others are damaged."""
    return random.Random(seed).choice(VALID) if seed % 4 == 0 else mutant(seed)


async def said(server: Running, data: bytes) -> Said:
    """What a server answers, without what is never twice the same."""
    async with server.client() as client:
        answers = parse(await converse(client, data + LAST))
    found: Said = []
    for answer in answers:
        headers = {name: value for name, value in answer.headers.items() if name not in {"date", "content-length"}}
        found.append((answer.status, headers, _VARYING.sub(b"", answer.body)))
    return found


@asynccontextmanager
async def both() -> AsyncIterator[tuple[Running, Running]]:
    """A server on each front end."""
    before = front_end.get()
    try:
        front_end.set("hypercorn")
        async with serving(echo, http=FAST) as hypercorn:
            front_end.set("native")
            async with serving(echo, http=FAST) as native:
                yield hypercorn, native
    finally:
        front_end.set(before)


async def compare(first: int, count: int) -> None:
    async with both() as (hypercorn, native):

        async def check(seed: int) -> None:
            data = request(seed)
            assert await said(native, data) == await said(hypercorn, data), (seed, data)

        for start in range(first, first + count, TOGETHER):
            async with trio.open_nursery() as nursery:
                for seed in range(start, start + TOGETHER):
                    nursery.start_soon(check, seed)


@pytest.fixture
def server() -> None:
    """Not one front end or the other, as elsewhere: both."""


async def test_same_answers() -> None:
    """Status, headers and body are the same for seeded requests, valid and damaged."""
    await compare(0, FEWER)


async def test_same_answers_to_fixtures_of_other_projects() -> None:
    """Their requests get the same answers too; what is no HTTP is refused last of all, and nothing behind it is answered."""
    names = [name for name, fixture in FIXTURES.items() if not fixture.data.lstrip().startswith(b"HEAD")]  # no body
    async with both() as (hypercorn, native):

        async def check(name: str) -> None:
            answers = await said(native, FIXTURES[name].data)
            assert answers == await said(hypercorn, FIXTURES[name].data), name
            if is_refused(FIXTURES[name].data):
                status, headers, _ = answers[-1]
                assert (status, headers["connection"]) in {(400, "close"), (431, "close")}, name

        for start in range(0, len(names), TOGETHER):
            async with trio.open_nursery() as nursery:
                for name in names[start : start + TOGETHER]:
                    nursery.start_soon(check, name)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_same_answers_to_many() -> None:
    """Status, headers and body are the same for all seeded requests."""
    await compare(FEWER, SEEDS - FEWER)
