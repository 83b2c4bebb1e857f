"""Bytes to requests, and what anything else is answered."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carmy_frames.protocol import (
    MAX_MESSAGE_BYTES,
    Call,
    Cancel,
    Describe,
    Event,
    Help,
    Ping,
    RemoteProtocolError,
    ResultFrame,
    ServerProtocol,
    Tools,
    decode_request,
    decode_server_frame,
    encode,
)
from carmy_frames.protocol._codec import too_large


@pytest.mark.parametrize(
    ("message", "request_"),
    [
        (b'{"id":1,"op":"ping"}', Ping(id=1)),
        (b' { "op" : "ping" , "id" : "1" } ', Ping(id="1")),
        (b'{"id":"","op":"help"}', Help(id="")),
        (b'{"id":-3,"op":"tools"}', Tools(id=-3)),
        (b'{"id":123456789012345678901234567890,"op":"ping"}', Ping(id=123456789012345678901234567890)),
        (b'{"id":1,"op":"describe","tool":"a"}', Describe(id=1, tool="a")),
        (b'{"id":1,"op":"cancel","target":"a"}', Cancel(id=1, target="a")),
        (b'{"id":1,"op":"cancel","execution_id":"e"}', Cancel(id=1, execution_id="e")),
        (b'{"id":1,"op":"call","tool":"a"}', Call(id=1, tool="a")),
        (b'{"id":1,"op":"call","tool":"a","on_running":"wait"}', Call(id=1, tool="a", on_running="wait")),
        (
            b'{"id":1,"op":"call","tool":"a","arguments":{"b":2},"request_id":"r","timeout_ms":5,"stream":true}',
            Call(id=1, tool="a", arguments=msgspec.Raw(b'{"b":2}'), request_id="r", timeout_ms=5, stream=True),
        ),
    ],
)
def test_requests(message: bytes, request_: object) -> None:
    """Every operation is read, with the type of its id."""
    found = decode_request(message)
    assert found == request_
    assert type(found.id) is type(request_.id)  # type: ignore[attr-defined] # all of them have one


def refusal(message: bytes) -> dict[str, Any]:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_request(message)
    assert caught.value.reply is not None
    answer: dict[str, Any] = json.loads(caught.value.reply)
    assert answer["ok"] is False
    return answer


@pytest.mark.parametrize(
    ("message", "id_", "reason"),
    [
        (b"garbage", None, "malformed"),
        (b"null", None, "Expected `object`"),
        (b"1", None, "Expected `object`"),
        (b"[]", None, "Expected `object`"),
        (b'"op"', None, "Expected `object`"),
        (b'{"id":1,"op":"ping"', None, "truncated"),
        (b'\xef\xbb\xbf{"id":1,"op":"ping"}', None, "malformed"),
        (b'{"id":1,"op":"ping"}{"id":2,"op":"ping"}', None, "trailing"),
        (b'{"id":1,"op":"ping","x":"\xff"}', None, "UTF-8"),
        (b'{"id":"\\ud800","op":"ping"}', None, "lone surrogate"),
        (b'{"id":1,"op":"call","tool":"a","arguments":{"s":"\\ud800"}}', None, "lone surrogate"),
        (b'{"id":1,"op":"call","tool":"a","arguments":{"s":"\\udc00"}}', None, "surrogate"),
        (b'{"id":1,"op":"call","tool":"a","arguments":{"s":"\\ud83d', None, "truncated"),
        (b"[" * 100_000, None, "nested"),
        (b'{"id":1}', 1, "'op' is missing"),
        (b'{"id":"a","op":null}', "a", "str"),
        (b'{"op":"ping"}', None, "the field 'id' is missing"),
        (b'{"id":null,"op":"ping"}', None, "id"),
        (b'{"id":true,"op":"ping"}', None, "id"),
        (b'{"id":1.5,"op":"ping"}', None, "id"),
        (b'{"id":[1],"op":"ping"}', None, "id"),
        (b'{"id":1,"op":"ping","principal":"root"}', 1, "principal"),
        (b'{"id":1,"op":"call"}', 1, "the field 'tool' is missing"),
        (b'{"id":1,"op":"call","tool":5}', 1, "tool"),
        (b'{"id":1,"op":"call","tool":"a","timeout_ms":0}', 1, "timeout_ms"),
        (b'{"id":1,"op":"call","tool":"a","timeout_ms":true}', 1, "timeout_ms"),
        (b'{"id":1,"op":"call","tool":"a","timeout_ms":1e999}', 1, "range"),
        (b'{"id":1,"op":"call","tool":"a","on_running":"join"}', 1, "'on_running' must be 'refuse' or 'wait'"),
        (b'{"id":1,"op":"call","tool":"a","on_running":null}', 1, "on_running"),
        (b'{"id":1,"op":"call","tool":"a","stream":1}', 1, "stream"),
        (b'{"id":1,"op":"call","tool":"a","tool":"b"}', 1, "twice"),
        (b'{"id":1,"id":2,"op":"ping"}', None, "twice"),
        (b'{"id":1,"op":"call","tool":"a","t\\u006fol":"b"}', 1, "twice"),
        (b'{"id":1,"op":"call","tool":"a","arguments":["%b"],"tool":"b"}' % (b"x" * 10_000), 1, "twice"),
        (b'{"id":1,"op":"call","tool":"a","arguments":["%b"],"t\\u006fol":"b"}' % (b"x" * 10_000), 1, "twice"),
        (b'{"id":1,"op":"cancel"}', 1, "target"),
        (b'{"id":1,"op":"cancel","target":1,"execution_id":"e"}', 1, "target"),
        (b'{"id":1,"op":"call","tool":"a","arguments":' + b"[" * 200 + b"]" * 200 + b"}", 1, "nested"),
        (b'{"id":1,"op":"call","tool":"a","arguments":{"n":1e999}}', 1, "range"),
        (b'{"id":1,"op":"call","tool":"a","arguments":{"n":1E+999}}', 1, "range"),
        (b'{"id":1,"op":"call","tool":"a","arguments":{"n":-' + b"9" * 309 + b".0}}", 1, "range"),
    ],
)
def test_refusals(message: bytes, id_: object, reason: str) -> None:
    """Whatever is not a request is refused with a reason, and with the id where there is one."""
    answer = refusal(message)
    assert answer["id"] == id_
    assert answer["error"]["code"] == "INVALID_REQUEST"
    assert reason in answer["error"]["details"]["reason"]


@pytest.mark.parametrize("text", [b"1e999", b"1E+999", b"9" * 400])
def test_numbers_in_text(text: bytes) -> None:
    """What looks like a number that fits no float is nothing but text inside a string."""
    request = decode_request(b'{"id":1,"op":"call","tool":"a","arguments":{"n":"' + text + b'"}}')
    assert isinstance(request, Call)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            b'{"id":1,"op":"call","tool":"a","argumets":{}}',
            "the field 'argumets' is not known; did you mean 'arguments'?",
        ),
        (b'{"id":1,"op":"cancel","taget":2}', "the field 'taget' is not known; did you mean 'target'?"),
        (b'{"id":1,"op":"ping","echo":2}', "the field 'echo' is not known; the fields are 'op', 'id'"),
    ],
)
def test_an_unknown_field_is_put_right(message: bytes, reason: str) -> None:
    """The nearest field of that operation is named, or all of them."""
    assert refusal(message)["error"]["details"]["reason"] == reason


def test_unknown_op() -> None:
    """An unknown operation has a code of its own, and the nearest known one is named."""
    answer = refusal(b'{"id":1,"op":"cal","tool":"a"}')
    assert answer["id"] == 1
    assert answer["error"]["code"] == "UNKNOWN_OP"
    assert "'call'" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("head", "id_"),
    [(b'{"id":"a","op":', "a"), (b'{ "id" : 12 ,', 12), (b'{"op":"call","id":1,', None), (b'{"id":"a\\u0062",', None)],
)
def test_too_large(head: bytes, id_: object) -> None:
    """A message over the limit is refused; its id is echoed if the message begins with a plain one."""
    message = head + b" " * MAX_MESSAGE_BYTES
    connection = ServerProtocol()
    connection.state = connection.state.OPEN
    with pytest.raises(RemoteProtocolError) as caught:
        connection.receive_message(message)
    assert caught.value.reply is not None
    answer = json.loads(caught.value.reply)
    assert (answer["id"], answer["ok"], answer["error"]["code"]) == (id_, False, "PAYLOAD_TOO_LARGE")
    assert caught.value.reply == too_large(message[: MAX_MESSAGE_BYTES + 1]).reply


def test_one_line() -> None:
    """What goes out contains nothing that any reader takes for a line's end, and means the same."""
    text = "a\u2028b\u2029c\u0085d"
    result = b'{"text":\n"' + text.encode() + b'"}\r'
    message = encode(ResultFrame(id=1, result=msgspec.Raw(result)))
    assert message.isascii()
    assert len(message.decode().splitlines()) == 1
    assert json.loads(message) == {"id": 1, "ok": True, "result": {"text": text}}


@given(st.binary(max_size=100) | st.text(max_size=100).map(str.encode))
def test_any_bytes(message: bytes) -> None:
    """Any bytes give a request, or one refusal."""
    reply = None
    try:
        decode_request(message)
    except RemoteProtocolError as error:
        reply = error.reply or b""
    assert reply is None or json.loads(reply)["ok"] is False


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "id": _JSON,
            "op": st.sampled_from(["call", "cancel", "tools", "describe", "ping", "help"]) | _JSON,
            "tool": st.text(max_size=8) | _JSON,
            "arguments": _JSON,
            "request_id": _JSON,
            "timeout_ms": _JSON,
            "on_running": _JSON,
            "stream": _JSON,
            "target": _JSON,
            "x": _JSON,
        },
    )
)
def test_any_object(message: dict[str, Any]) -> None:
    """Any object gives a request with its very id, or one refusal with that id or none."""
    usable = isinstance(message.get("id"), str | int) and not isinstance(message.get("id"), bool)
    reply = found = None
    try:
        found = decode_request(json.dumps(message).encode())
    except RemoteProtocolError as error:
        reply = error.reply or b""
    if reply is not None:
        assert json.loads(reply)["id"] == (message["id"] if usable else None)
    else:
        assert found is not None
        assert found.id == message["id"]
        assert type(found.id) is type(message["id"])


@pytest.mark.parametrize("depth", [127, 500])
def test_deep_answers(depth: int) -> None:
    """An output of any depth that a server can write arrives whole: it must not cost the connection and all its calls."""
    output = b"[" * depth + b"]" * depth
    answer = decode_server_frame(b'{"id":1,"ok":true,"result":{"data":' + output + b"}}")
    assert isinstance(answer, ResultFrame)
    assert bytes(answer.result) == b'{"data":' + output + b"}"
    event = decode_server_frame(b'{"id":1,"event":"tool.progress","seq":1,"data":{"partial":' + output + b"}}")
    assert isinstance(event, Event)
    assert bytes(event.data) == b'{"partial":' + output + b"}"


def test_answers_that_no_parser_survives() -> None:
    """Nesting without end from a server is refused, and does not end the process."""
    with pytest.raises(RemoteProtocolError):
        decode_server_frame(b'{"id":1,"ok":true,"result":' + b"[" * 100_000)
