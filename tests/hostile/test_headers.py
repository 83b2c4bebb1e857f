"""Headers of the largest size that is allowed, made to cost as much as they can."""

from __future__ import annotations

import pytest

from tests.hostile.siege import besieged, front_end, no_fault
from tests.hostile.tools import ALL
from tests.support.http import render

__all__ = ["front_end", "no_fault"]

SIZE = 30_000

FILLERS = [
    "a", ",", ";", "=", '"', '""', '\\"', '"\\', '"\\"', " ,", "\t", "; ", ";q", ";q=", ";q=1", ';a="', ';a="\\"', ";a=b;", "a/b,", "*/*,",
    "text/event-stream;q=0.5,", 'W/"a",', '"a",', "W/", ":", "[", "[::", "1.", "@", "%", "\xff", "é", "text/event-stream;x=\"",
    "application/json;", "charset=utf-8;", "Bearer ", "http://", "-", "a=b&",
]  # fmt: skip
NAMES = [
    "accept", "content-type", "content-encoding", "if-none-match", "host", "origin", "authorization", "idempotency-key", "connection",
    "access-control-request-method", "expect", "cookie",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
async def test_headers(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a large header contains, and with whatever beginning, its request gets an answer, and costs no second."""
    async with besieged(*ALL) as siege:
        for start in ("", "text/event-stream, ", "application/json; ", '"'):
            for filler in FILLERS:
                value = (start + filler * (SIZE // len(filler))).strip()
                headers = {"content-type": "application/json", "idempotency-key": "a" * 8, name: value}
                if name != "idempotency-key":
                    del headers["idempotency-key"]
                for method, path, body in (
                    ("POST", "/agent/execute", b'{"tool":"echo"}'),
                    ("GET", "/agent/tools", None),
                ):
                    async with siege.server.client() as client:
                        await client.send(render(method, path, headers, body))
                        answer = await client.answer()
                        assert answer.status in {200, 204, 304, 400, 401, 403, 431}, (filler, answer)
    assert "event loop" not in caplog.text
