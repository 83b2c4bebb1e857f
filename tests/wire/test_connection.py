"""Both ends of a connection, without any channel between them."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carmy_engine import AgentError, Catalog, ExecutionCompleted, ExecutionResult, ExecutionStarted, ToolProgress
from carmy_engine.codec import answer_body
from carmy_frames.protocol import (
    MAX_MESSAGE_BYTES,
    Call,
    Cancel,
    ClientProtocol,
    ClientState,
    ErrorFrame,
    Event,
    Limits,
    LineBuffer,
    LocalProtocolError,
    Ping,
    Ready,
    RemoteProtocolError,
    ResultFrame,
    ServerProtocol,
    ServerState,
    parse_result,
)

CATALOG = Catalog(tools=(), document=b'{"tools":[]}', version="0" * 64)


def pair(max_calls: int = 1000) -> tuple[ServerProtocol, ClientProtocol]:
    limits = Limits(max_message_bytes=MAX_MESSAGE_BYTES, max_calls=max_calls)
    server, client = ServerProtocol(limits), ClientProtocol()
    ready = client.receive_message(server.send_ready("shop", CATALOG))
    assert isinstance(ready, Ready)
    assert client.ready is ready
    return server, client


def test_ready() -> None:
    """The first frame names the server, its catalog and its limits."""
    frame = json.loads(
        ServerProtocol(Limits(max_message_bytes=MAX_MESSAGE_BYTES, max_calls=7)).send_ready("shop", CATALOG)
    )
    assert frame == {
        "event": "ready",
        "protocol": "carmy-frames/1",
        "server": "shop",
        "tools": 0,
        "tools_version": "0" * 64,
        "limits": {"max_message_bytes": 4194304, "max_calls": 7},
    }


def test_call() -> None:
    """A call is accepted once, gets its answer, and its id is free again."""
    server, client = pair()
    call = Call(id=client.next_id(), tool="a", arguments=msgspec.Raw(b'{"b":[1,\n2]}'))
    got = server.receive_message(client.send(call))
    assert isinstance(got, Call)
    assert json.loads(bytes(got.arguments or b"")) == {"b": [1, 2]}
    assert list(server.calls) == [call.id]
    result = ExecutionResult(execution_id="exec_1", data_json=b"5", duration_ms=1.5, cacheable=True)
    answer = client.receive_message(server.send_result(call.id, answer_body(result, replayed=True, duration=True)))
    assert isinstance(answer, ResultFrame)
    parsed = parse_result(bytes(answer.result))
    assert (parsed.data, parsed.execution_id, parsed.cacheable, parsed.replayed) == (5, "exec_1", True, False)
    assert not server.calls
    assert not client.unanswered
    server.receive_message(msgspec.json.encode(call))


def test_stream() -> None:
    """Events come before the answer, for streaming calls only."""
    server, client = pair()
    streaming, plain = Call(id=1, tool="a", stream=True), Call(id=2, tool="a")
    server.receive_message(client.send(streaming))
    server.receive_message(client.send(plain))
    event = client.receive_message(server.send_event(1, ToolProgress(seq=3, execution_id="e", tool="a", progress=0.5)))
    assert isinstance(event, Event)
    assert (event.id, event.event, event.seq) == (1, "tool.progress", 3)
    assert json.loads(bytes(event.data)) == {"execution_id": "e", "tool": "a", "progress": 0.5}
    with pytest.raises(LocalProtocolError):
        server.send_event(2, ExecutionStarted(seq=0, execution_id="e", tool="a"))
    result = ExecutionResult(execution_id="e", data_json=b"1")
    server.send_event(1, ExecutionCompleted(seq=4, execution_id="e", tool="a", result=result))
    server.send_result(1, b"{}")
    with pytest.raises(LocalProtocolError):
        server.send_event(1, ExecutionStarted(seq=0, execution_id="e", tool="a"))


def test_same_id_twice() -> None:
    """While a call has no answer, nothing else may have its id; afterwards it may."""
    server, _ = pair()
    server.receive_message(b'{"id":"a","op":"call","tool":"t"}')
    for op in ('"call","tool":"t"', '"ping"', '"cancel","target":"a"'):
        with pytest.raises(RemoteProtocolError, match="has not been answered") as caught:
            server.receive_message(f'{{"id":"a","op":{op}}}'.encode())
        assert json.loads(caught.value.reply or b"")["id"] == "a"
    server.send_result("a", b"{}")
    server.receive_message(b'{"id":"a","op":"call","tool":"t"}')


def test_ids_have_types() -> None:
    """The text "1" and the number 1 are different ids."""
    server, _ = pair()
    server.receive_message(b'{"id":"1","op":"call","tool":"t"}')
    server.receive_message(b'{"id":1,"op":"call","tool":"t"}')
    assert server.send_result("1", b"{}") == b'{"id":"1","ok":true,"result":{}}'
    assert server.send_result(1, b"{}") == b'{"id":1,"ok":true,"result":{}}'


def test_too_many_calls() -> None:
    """Calls over the limit are refused at once; anything else is not."""
    server, _ = pair(max_calls=1)
    server.receive_message(b'{"id":1,"op":"call","tool":"t"}')
    with pytest.raises(RemoteProtocolError) as caught:
        server.receive_message(b'{"id":2,"op":"call","tool":"t"}')
    assert json.loads(caught.value.reply or b"")["error"]["code"] == "OVERLOADED"
    assert server.receive_message(b'{"id":3,"op":"cancel","target":1}') == Cancel(id=3, target=1)


def test_end() -> None:
    """After the end of input, accepted calls are answered, and then the connection is closed."""
    server, _ = pair()
    server.receive_message(b'{"id":1,"op":"call","tool":"t"}')
    server.receive_end()
    assert server.state is ServerState.ENDING
    with pytest.raises(LocalProtocolError):
        server.receive_message(b'{"id":2,"op":"ping"}')
    server.send_result(1, b"{}")
    assert server.state is ServerState.CLOSED
    with pytest.raises(LocalProtocolError):
        server.send_result(1, b"{}")


def test_end_when_idle() -> None:
    """Without calls, the end of input closes the connection."""
    server, _ = pair()
    server.receive_end()
    assert server.state is ServerState.CLOSED


def test_client_end() -> None:
    """When the server has gone, the client learns what will not be answered."""
    server, client = pair()
    client.send(Ping(id=1))
    client.send(Ping(id=2))
    client.receive_message(server.send_result(1, b"{}"))
    assert list(client.receive_end()) == [2]
    assert client.state is ClientState.CLOSED
    with pytest.raises(LocalProtocolError):
        client.send(Ping(id=3))


def test_client_misuse() -> None:
    """The client refuses to send before the server is ready, an id twice, or too large a message."""
    with pytest.raises(LocalProtocolError):
        ClientProtocol().send(Ping(id=1))
    _, client = pair()
    client.send(Ping(id=1))
    with pytest.raises(LocalProtocolError):
        client.send(Ping(id=1))
    with pytest.raises(LocalProtocolError, match="the server takes 4194304"):
        client.send(Call(id=2, tool="a", arguments=msgspec.Raw(b'"' + b"x" * 4194304 + b'"')))
    assert list(client.unanswered) == [1]


def test_refusal() -> None:
    """A refused request ends with the error; one whose id could not be read has no id."""
    server, client = pair()
    server.receive_message(client.send(Call(id=1, tool="a")))
    refusal = client.receive_message(server.send_error(1, AgentError.standard("FORBIDDEN", "no").info))
    assert isinstance(refusal, ErrorFrame)
    assert refusal.error.code == "FORBIDDEN"
    with pytest.raises(RemoteProtocolError) as caught:
        server.receive_message(b"garbage")
    refusal = client.receive_message(caught.value.reply or b"")
    assert isinstance(refusal, ErrorFrame)
    assert refusal.id is None


@pytest.mark.parametrize(
    "message",
    [
        b"garbage",
        b"{}",
        b"[]",
        b'{"id":9,"ok":true,"result":1}',
        b'{"id":1,"ok":true}',
        b'{"id":1,"ok":false}',
        b'{"id":1,"event":"tool.progress","seq":0,"data":{}}',
        b'{"event":"ready","protocol":"carmy-frames/1"}',
    ],
)
def test_bad_server(message: bytes) -> None:
    """What a server may not send now is its own fault: the error is a `LocalProtocolError`."""
    _, client = pair()
    client.send(Call(id=1, tool="a"))
    with pytest.raises(RemoteProtocolError):
        client.receive_message(message)


@pytest.mark.parametrize(
    "message", [b'{"event":"ready","protocol":"carmy-frames/9"}', b'{"id":1,"ok":true,"result":1}']
)
def test_not_our_protocol(message: bytes) -> None:
    """A first frame that is not ours is refused."""
    with pytest.raises(RemoteProtocolError):
        ClientProtocol().receive_message(message)


def test_newer_server() -> None:
    """Fields that the client does not know are ignored."""
    _, client = pair()
    client.send(Ping(id=1))
    assert client.receive_message(b'{"id":1,"new":true,"ok":true,"result":{}}') == ResultFrame(
        id=1, result=msgspec.Raw(b"{}")
    )


@given(
    st.lists(st.binary(max_size=30) | st.sampled_from([b"\n", b'{"id":1,"op":"ping"}\n', b'{"id"', b":"]), max_size=12),
    st.data(),
)
def test_any_bytes_in_any_pieces(parts: list[bytes], data: st.DataObject) -> None:
    """Whatever comes before, however it is cut, is requests and refusals, one for each line; and then a ping works."""
    stream = b"".join(parts) + b'\n{"id":"last","op":"ping"}\n'
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    server, _ = pair()
    buffer = LineBuffer(MAX_MESSAGE_BYTES)
    answered = 0
    last: object = None
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        for line in buffer.feed(stream[start:end]):
            try:
                last = server.receive_message(line)
            except RemoteProtocolError as error:
                last = error.reply
            answered += last is not None
    assert last == Ping(id="last")
    assert answered == sum(1 for line in stream.split(b"\n") if line.removesuffix(b"\r").strip(b" \t\r"))
