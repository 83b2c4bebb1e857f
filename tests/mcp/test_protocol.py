"""The protocol without a loop: states, versions, and messages in any order and chunking."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carmy_frames.protocol import LineBuffer, LocalProtocolError
from carmy_mcp.protocol.connection import CLIENT, SERVER, ServerProtocol, ServerState, key_of
from carmy_mcp.protocol.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    UNSUPPORTED_VERSION,
    JsonRpcError,
    RemoteProtocolError,
)
from carmy_mcp.protocol.event_log import EventLog, parse_event_id
from carmy_mcp.protocol.messages import ErrorResponse, Notification, Request, Response, decode
from carmy_mcp.protocol.methods import METHODS, has
from carmy_mcp.protocol.versions import VERSIONS, negotiated

MODERN = "2026-07-28"
DESCRIBED = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def opened(method: str, params: dict[str, Any]) -> ServerProtocol:
    """A connection after its first request, which has been answered."""
    protocol = ServerProtocol(10, 20)
    first = protocol.receive_message(message(id=0, method=method, params=params))
    assert isinstance(first, Request)
    protocol.client_of(first)
    protocol.send_result(0, b"{}")
    return protocol


def test_the_first_request_decides() -> None:
    """A handshake begins with its version, a described request begins a connection without state, and a ping decides nothing."""
    assert opened("initialize", HELLO).state is ServerState.HANDSHAKE
    assert opened("tools/list", DESCRIBED).state is ServerState.MODERN
    assert opened("ping", {}).state is ServerState.STARTING
    client = opened("initialize", {**HELLO, "protocolVersion": "1999-01-01"}).client
    assert client is not None
    assert client.version == negotiated("") == "2025-11-25"


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (("initialize", HELLO), ("tools/list", DESCRIBED), INVALID_REQUEST),
        (("tools/list", DESCRIBED), ("initialize", HELLO), UNSUPPORTED_VERSION),
        (("tools/list", DESCRIBED), ("tools/list", {}), INVALID_PARAMS),
        (("ping", {}), ("tools/list", {}), INVALID_PARAMS),
        (("ping", {}), ("initialize", {}), INVALID_PARAMS),
    ],
)
def test_a_connection_does_not_change_its_kind(first: Any, second: Any, code: int) -> None:
    """A request of the other kind is refused, and the state stays."""
    protocol = opened(*first)
    state = protocol.state
    request = protocol.receive_message(message(id=1, method=second[0], params=second[1]))
    assert isinstance(request, Request)
    with pytest.raises(JsonRpcError) as caught:
        protocol.client_of(request)
    assert (caught.value.code, protocol.state) == (code, state)


def test_misuse_by_the_server() -> None:
    """An answer without a request, a question where there are none, and a message after the end are errors of this side."""
    protocol = opened("tools/list", DESCRIBED)
    with pytest.raises(LocalProtocolError):
        protocol.send_result(7, b"{}")
    with pytest.raises(LocalProtocolError):
        protocol.send_request("roots/list", None)
    protocol.receive_end()
    assert protocol.state is ServerState.CLOSED
    with pytest.raises(LocalProtocolError):
        protocol.receive_message(message(method="notifications/x"))


def test_questions_of_the_server() -> None:
    """Only the answer to an open question counts, once."""
    protocol = opened("initialize", HELLO)
    number, data = protocol.send_request("roots/list", {})
    asked = decode(data)
    assert isinstance(asked, Request)
    assert (asked.id, asked.method) == (number, "roots/list")
    assert protocol.receive_message(message(id=number + 1, result={})) is None
    assert isinstance(protocol.receive_message(message(id=number, result={})), Response)
    assert protocol.receive_message(message(id=number, error={"code": 1, "message": ""})) is None
    withdrawn, _ = protocol.send_request("roots/list", {})
    assert isinstance(decode(protocol.withdraw(withdrawn)), Notification)
    assert protocol.receive_message(message(id=withdrawn, result={})) is None


def test_ids() -> None:
    """A number and its text are one id; other texts are themselves."""
    assert [key_of(id_) for id_ in (1, "1", "-7", "01", "1.0", "", "x", "9" * 30)] == [
        1,
        1,
        -7,
        "01",
        "1.0",
        "",
        "x",
        "9" * 30,
    ]


def test_tables() -> None:
    """Each table draws its diagram, and every method is in some version."""
    assert "[*] --> starting" in SERVER.mermaid()
    assert "[*] --> starting" in CLIENT.mermaid()
    assert all(any(has(method, version) for version in VERSIONS) for method in METHODS)
    assert has("ping", "2025-11-25")
    assert not has("ping", MODERN)
    assert not has("server/discover", "2025-11-25")


def test_an_event_log_is_bounded() -> None:
    """The oldest events are dropped, the newest never; events come after a given one."""
    log = EventLog("s", 200)
    for number in range(1, 11):
        assert log.append(b'{"n":%d}' % number) == number
    kept = [number for number, _ in log.after(0)]
    assert kept == list(range(kept[0], 11))
    assert sum(len(event) for _, event in log.after(0)) <= 200
    assert [number for number, _ in log.after(9)] == [10]
    assert log.after(10) == log.after(99) == []
    log.append(b"x" * 1000)
    assert [number for number, _ in log.after(0)] == [11]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"s-0", ("s", 0)),
        (b"s-12", ("s", 12)),
        (b"", None),
        (b"7", None),
        (b"s-", None),
        (b"s-x", None),
        (b"\xff-1", None),
    ],
)
def test_event_ids(value: bytes, found: tuple[str, int] | None) -> None:
    """What is no id of a stream is none."""
    assert parse_event_id(value) == found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
IDS: Any = st.integers(-2, 3) | st.sampled_from(["0", "1", "x", "", None, True, 1.5, []])
METHOD: Any = st.sampled_from([*METHODS, "notifications/cancelled", "notifications/initialized", "x", "", 5, None])
PARAMS: Any = st.sampled_from([{}, HELLO, DESCRIBED, {"name": "t", "arguments": {}}, {"requestId": 1}, None, []]) | JSON
MESSAGES: Any = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0", 2]),
        "id": IDS,
        "method": METHOD,
        "params": PARAMS,
        "result": JSON,
        "error": JSON,
    },
)
LINES = st.lists(st.builds(json.dumps, MESSAGES).map(str.encode) | st.binary(max_size=30), max_size=12)


@given(LINES, st.lists(st.integers(1, 40), min_size=1, max_size=8), st.booleans())
def test_messages_in_any_order_and_chunking(lines: list[bytes], sizes: list[int], handshake: bool) -> None:
    """Each line is a message or is refused with one reply; every accepted request can be answered once, and then nothing is left."""
    stream = b"\n".join([*lines, b""])
    whole = LineBuffer(1 << 20)
    expected = whole.feed(stream) + whole.finish()
    chunked = LineBuffer(1 << 20)
    found: list[bytes] = []
    at = number = 0
    while at < len(stream):
        size = sizes[number % len(sizes)]
        found += chunked.feed(stream[at : at + size])
        at, number = at + size, number + 1
    assert found + chunked.finish() == expected
    protocol = opened("initialize", HELLO) if handshake else ServerProtocol(4, 6)
    waiting: list[Request] = []
    for line in expected:
        try:
            taken = protocol.receive_message(line)
        except RemoteProtocolError as violation:
            reply = json.loads(protocol.reply_to(violation))
            assert reply["error"]["code"] < 0
            assert reply["id"] is None or key_of(reply["id"]) not in protocol.accepted
            continue
        assert taken is None or isinstance(taken, Request | Notification | Response | ErrorResponse)
        if isinstance(taken, Request):
            try:
                protocol.client_of(taken)
                waiting.append(taken)
            except JsonRpcError as error:
                protocol.send_error(taken.id, error)
    assert len(protocol.accepted) == len(waiting) <= 6
    protocol.receive_end()
    for request in waiting:
        assert json.loads(protocol.send_result(request.id, b"{}"))["id"] == request.id
    assert protocol.state is ServerState.CLOSED
