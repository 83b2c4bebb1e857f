"""Escapes of many calls at once: each costs its own call one answer, whatever the others are doing."""

from __future__ import annotations

import random
from typing import Literal

import pytest
import trio

from tests.boundary.escapes import ESCAPES, SECRET
from tests.boundary.test_matrix import SITES, Site
from tests.boundary.ways import Http, connected, serving_http

CLIENTS = 20
CALLS = 30
LIMIT = 60.0
"""Seconds, for what takes a few."""

CALLED = {
    name: site for name, site in SITES.items() if site.tool and site.request_id is None and not site.ways and site.lines
}


@pytest.mark.parametrize("front_end", ["native", "hypercorn"])
async def test_every_call_of_a_crowd_is_answered(front_end: Literal["native", "hypercorn"]) -> None:
    """Clients that call everything that raises, in any order and beside calls that do not, each get their own answers."""

    async def client(number: int) -> None:
        order = random.Random(number)
        async with connected(url) as connection:
            way = Http(connection)
            for _ in range(CALLS):
                site, how = order.choice([*CALLED.values()]), order.choice([*ESCAPES, "no"])
                said = await way.call(*_call_of(site, how), streamed=site.streamed, request_id=None)
                fine = how == "no" or how in site.absorbed
                assert said.code in ({"ok"} if fine else site.codes)
                assert SECRET not in said.raw

    with trio.fail_after(LIMIT):
        async with serving_http(front_end) as url, trio.open_nursery() as nursery:
            for number in range(CLIENTS):
                nursery.start_soon(client, number)


def _call_of(site: Site, how: str) -> tuple[str, dict[str, str]]:
    tool = site.tool.format(how=how)
    return tool, {} if "." in tool else {"how": how}
