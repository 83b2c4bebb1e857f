"""Bodies of the largest size that is allowed, made to cost as much as they can."""

from __future__ import annotations

import time

import pytest

from tests.hostile.siege import besieged, no_fault
from tests.hostile.tools import ALL

__all__ = ["no_fault"]

LIMIT = 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
"""Of an answer that says what is wrong; it must not give back what was sent."""

MAX_CPU_SECONDS = 2.0
"""Half a second is usual for the worst of them. What is quadratic takes minutes."""


def fill(start: bytes, unit: bytes, end: bytes = b"") -> bytes:
    """As many units as fit."""
    return start + unit * ((LIMIT - len(start) - len(end)) // len(unit)) + end


KEYS = b",".join(b'"k%d":1' % number for number in range(80_000))
HALF = LIMIT // 2 - 100
TEXT = b'{"tool":"echo","arguments":{"text":'

BODIES: dict[str, tuple[bytes, int]] = {
    "arrays in arrays": (b"[" * HALF + b"]" * HALF, 400),
    "objects in objects": (fill(b"", b'{"a":'), 400),
    "arrays in arrays, as an argument": (TEXT + b"[" * HALF + b"]" * HALF + b"}}", 400),
    "arrays in arrays, behind an escape": (
        b'{"tool":"echo","arguments":{"te\\u0078t":' + b"[" * HALF + b"]" * HALF + b"}}",
        400,
    ),
    "a long number": (fill(b'{"tool":"echo","timeout_ms":', b"9", b"}"), 400),
    "a long number, as an argument": (fill(TEXT, b"9", b"}}"), 400),
    "a long fraction": (fill(TEXT + b"0.", b"9", b"}}"), 400),
    "numbers that fit nowhere": (fill(TEXT + b"[", b"1e400,", b"1]}}"), 400),
    "many names": (b'{"tool":"echo",' + KEYS + b"}", 400),
    "many names of arguments": (b'{"tool":"echo","arguments":{' + KEYS + b"}}", 400),
    "one name very often": (fill(b'{"tool":"echo","arguments":{', b'"a":1,', b'"a":1}}'), 400),
    "a long name": (fill(b'{"tool":"echo","', b"a", b'":1}'), 400),
    "a long name of an argument": (fill(b'{"tool":"echo","arguments":{"', b"a", b'":1}}'), 400),
    "a long name in escapes": (fill(b'{"tool":"echo","', b"\\u0061", b'":1}'), 400),
    "a long name of a tool": (fill(b'{"tool":"', b"a", b'"}'), 404),
    "a long request_id": (fill(b'{"tool":"echo","request_id":"', b"a", b'"}'), 400),
    "the name of a field, very often": (fill(b'{"tool":"echo","arguments":{"x":[', b'"tool",', b'"tool"]}}'), 400),
    "lone surrogates": (fill(TEXT + b'"', b"\\ud800", b'"}}'), 400),
    "many empty arrays": (fill(TEXT + b"[", b"[],", b"[]]}}"), 400),
    "no UTF-8": (fill(b'{"tool":"', b"\xff", b'"}'), 400),
    "no end": (fill(b'{"tool":"', b"a"), 400),
    "quotes without an end": (fill(b"[" * 200 + b'"', b'\\"'), 400),
    "quotes without an end, as an argument": (fill(TEXT + b"[" * 200 + b'"', b'\\"'), 400),
    "numbers that nearly fit nowhere": (fill(TEXT + b"[", b"9" * 308 + b",", b"1]}}"), 400),
    "brackets in a text": (fill(TEXT + b'"', b"[{", b'"}}'), 200),
    "commas": (fill(b'{"tool":"echo"', b","), 400),
    "backslashes without an end": (fill(TEXT + b'"', b"\\"), 400),
    "backslashes": (fill(TEXT + b'"', b"\\\\", b'"}}'), 200),
    "escapes": (fill(TEXT + b'"', b"\\u0061", b'"}}'), 200),
    "quotes": (fill(TEXT + b'"', b'\\"', b'"}}'), 200),
    "spaces": (fill(b'{"tool":"echo"', b" ", b"}"), 200),
}


@pytest.mark.parametrize("name", BODIES)
async def test_bodies(name: str) -> None:
    """A large body gets its documented answer, of bounded size, and is dealt with in time that is linear in its size."""
    body, status = BODIES[name]
    assert len(body) <= LIMIT
    async with besieged(*ALL) as siege:
        async with siege.server.client() as client:
            before = time.process_time()  # by the clock, it would depend on what else the machine does
            answer = await client.request("POST", "/agent/execute", {"content-type": "application/json"}, body)
            spent = time.process_time() - before
        assert answer.status == status
        if status != 200:
            assert answer.code in {"INVALID_REQUEST", "INVALID_ARGUMENTS", "INVALID_ID", "TOOL_NOT_FOUND"}
            assert len(answer.body) < MAX_ERROR_BYTES
    assert spent < MAX_CPU_SECONDS
