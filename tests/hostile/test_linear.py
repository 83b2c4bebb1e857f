"""Readers of untrusted input take work in proportion to its length.

The work is counted, not timed: executed lines of Python, and bytes that are copied out of a buffer that collects pieces.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from carmy_engine import AgentContext, AgentError, RateLimit
from carmy_frames.protocol import LineBuffer
from carmy_http.api import content_negotiation
from carmy_http.message import split_path
from carmy_mcp.protocol.errors import JsonRpcError, RemoteProtocolError
from carmy_mcp.protocol.messages import Request, decode
from carmy_mcp.protocol.params import parse_call
from carmy_net import EventReader


def lines_of(work: Callable[[], object]) -> int:
    """The number of lines of Python that are executed."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(previous)
    return count


def refused(data: bytes) -> Callable[[], object]:
    """Read a message of MCP, which may be refused."""

    def work() -> None:
        with contextlib.suppress(RemoteProtocolError, JsonRpcError, AgentError):
            found = decode(data)
            if isinstance(found, Request):
                parse_call(found.params)

    return work


def message(**params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def accept_of(size: int) -> int:
    """``Accept`` with many q-values."""
    value = b",".join(b"a/b;q=0.5" for _ in range(size))
    return lines_of(lambda: content_negotiation._wants_events.__wrapped__(value))


def parameters_of(size: int) -> int:
    """``Accept`` with one item of many parameters."""
    return lines_of(lambda: content_negotiation._wants_events.__wrapped__(b"a/b" + b";a=0" * size))


def content_type_of(size: int) -> int:
    """``Content-Type`` with many parameters."""
    value = b"application/json" + b";a=0" * size
    return lines_of(lambda: content_negotiation.content_type_problem.__wrapped__(value))


def etags_of(size: int) -> int:
    """``If-None-Match`` with many entity tags."""
    return lines_of(lambda: content_negotiation.matches_etag([b'W/"a",' * size], b'"b"'))


def path_of(size: int) -> int:
    """A target with many separators."""
    return lines_of(lambda: split_path("http://" + "a/?://" * size)) + size


def batch_of(size: int) -> int:
    """A batch of JSON-RPC, which the protocol no longer has."""
    return lines_of(refused(b"[" + b",".join([message(name="a")] * size) + b"]")) + size


def members_of(size: int) -> int:
    """A call with many parameters, and an escape that makes every name suspicious."""
    return lines_of(refused(message(name="\u00e9", **{f"p{number}": {"name": 1} for number in range(size)})))


def metadata_of(size: int) -> int:
    """A call whose metadata repeats the names that matter."""
    return lines_of(refused(message(name="a", _meta={str(number): {"name": "_meta"} for number in range(size)})))


READERS = [accept_of, parameters_of, content_type_of, etags_of, path_of, batch_of, members_of, metadata_of]


@pytest.mark.parametrize("cost", READERS)
def test_twice_the_items_take_twice_the_lines(cost: Callable[[int], int]) -> None:
    """Headers, targets and messages of many items are read in linear time."""
    assert 0 < cost(400) < 2.2 * cost(200) + 100


class Counting(bytearray):
    """A buffer that counts the bytes that are copied out of it, or searched."""

    work = 0

    def __getitem__(self, index: Any) -> Any:
        taken = super().__getitem__(index)
        self.work += len(taken) if isinstance(index, slice) else 1
        return taken

    def __bytes__(self) -> bytes:
        self.work += len(self)
        return bytes(memoryview(self))

    def find(self, *args: Any) -> int:
        self.work += len(self)
        return super().find(*args)

    def strip(self, *args: Any) -> bytearray:
        self.work += len(self)
        return super().strip(*args)


def one_line_of(size: int) -> int:
    """One long line of JSON Lines."""
    lines, buffer = LineBuffer(2 * size), Counting()
    lines._partial = buffer
    found = [line for byte in bytes(size) + b"\n" for line in lines.feed(bytes([byte]))]
    assert [len(line) for line in found] == [size]
    return buffer.work


def too_long_line_of(size: int) -> int:
    """A line over the limit, which is cut and skipped."""
    lines, buffer = LineBuffer(size // 2), Counting()
    lines._partial = buffer
    found = [line for byte in b"a" * size + b"\n" for line in lines.feed(bytes([byte]))]
    assert [len(line) for line in found] == [size // 2 + 1]
    return buffer.work


def one_event_of(size: int) -> int:
    """A server-sent event of one long line."""
    return _events(b"data: " + b"a" * size + b"\n\n")


def many_lines_of(size: int) -> int:
    """A server-sent event of many lines."""
    return _events(b"data: a\r\n" * (size // 9) + b"\r\n")


def many_ids_of(size: int) -> int:
    """Events without data, each of which sets the id that a client sends as ``Last-Event-ID``."""
    return _events(b"id: 1\n\n" * (size // 7))


def _events(data: bytes) -> int:
    reader = EventReader()
    reader._line, reader._data = Counting(), Counting()
    for byte in data:
        reader.feed(bytes([byte]))
    return reader._line.work + reader._data.work


@pytest.mark.parametrize("cost", [one_line_of, too_long_line_of, one_event_of, many_lines_of, many_ids_of])
def test_twice_the_bytes_take_twice_the_copies(cost: Callable[[int], int]) -> None:
    """Streams that arrive byte by byte are read in linear time: no piece is copied again from its beginning."""
    assert 0 < cost(20_000) < 2.2 * cost(10_000) + 100
    assert cost(20_000) <= 4 * 20_000


def test_a_line_of_four_mebibytes_arrives_byte_by_byte() -> None:
    """The longest line of a frame is returned once, and its bytes are copied a constant number of times."""
    size = 4 * 1024 * 1024
    lines, buffer = LineBuffer(size), Counting()
    lines._partial = buffer
    found: list[bytes] = []
    for _ in range(size):
        found += lines.feed(b"a")
    found += lines.feed(b"\n")
    assert [len(line) for line in found] == [size]
    assert buffer.work <= 3 * size


async def test_a_new_caller_costs_a_full_rate_limit_nothing_more() -> None:
    """A caller beyond the remembered ones replaces the oldest window, without a copy of all others."""
    spec: Any = None  # the limit does not depend on the tool
    limit = RateLimit(1, 60)
    for number in range(limit.MAX_WINDOWS):
        limit.check(AgentContext(principal=str(number)), spec)
    tracemalloc.start()
    try:
        for number in range(100):
            limit.check(AgentContext(principal=f"new {number}"), spec)
            with pytest.raises(AgentError, match="at most 1 call"):
                limit.check(AgentContext(principal=f"new {number}"), spec)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * limit.MAX_WINDOWS
    assert len(limit._windows) == limit.MAX_WINDOWS
