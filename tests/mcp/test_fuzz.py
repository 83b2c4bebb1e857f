"""JSON-RPC messages in any order and chunking, valid or not: one answer or one refusal each, and nothing of them is left.

Short by default; ``--long`` draws 5,000 conversations.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest
import trio
import trio.testing

from carmy_engine import AgentContext, App
from carmy_frames.protocol import LineBuffer
from carmy_mcp.protocol.connection import key_of
from carmy_mcp.protocol.errors import RemoteProtocolError
from carmy_mcp.protocol.messages import Notification, Request, decode
from carmy_mcp.protocol.params import TASKS
from carmy_mcp.server.connection import serve_connection
from carmy_mcp.server.server import McpServer
from carmy_stdio import LineChannel
from tests.mcp.conftest import HELLO, request
from tests.mcp.inside import MODERN

LIMIT = 2000
"""Bytes of a line."""

NEVER_ANSWERED = {"hold", "ask", "subscriptions/listen"}
"""Tools and methods that may last until the client leaves."""


class Answer(msgspec.Struct):
    """A form that `ask` shows."""

    text: str


class Ran:
    """The tools that have begun and ended."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0

    def __enter__(self) -> None:
        self.begun += 1

    def __exit__(self, *_: object) -> None:
        self.ended += 1


def app_of(ran: Ran) -> App:
    """Tools that answer at once, soon, never and after a question."""
    app = App("fuzz")

    @app.tool(effect="none", parallel_safe=True)
    async def echo(text: str) -> str:
        """Repeat."""
        with ran:
            return text

    @app.tool(effect="read", idempotent=True, parallel_safe=True)
    async def soon(ctx: AgentContext, steps: int = 2) -> int:
        """Take some turns."""
        with ran:
            for step in range(min(steps, 5)):
                ctx.progress.report(step)
                await trio.lowlevel.checkpoint()
            return steps

    @app.tool(effect="write")
    async def hold() -> None:
        """Go on for ever, one at a time."""
        with ran:
            await trio.sleep_forever()

    @app.tool(effect="none", parallel_safe=True)
    async def ask(ctx: AgentContext) -> str:
        """Ask the client."""
        with ran:
            found = await ctx.ask(Answer, "Which?")
            return "none" if found is None else found.text

    @app.tool(effect="none", parallel_safe=True)
    async def fail() -> None:
        """Raise."""
        with ran:
            raise RuntimeError("secret")

    @app.resource("notes://{name}")
    async def note(name: str) -> str:
        """A note."""
        return name

    @app.prompt
    async def greet(name: str) -> str:
        """A greeting."""
        return f"Greet {name}"

    return app


# Messages

IDS: st.SearchStrategy[Any] = st.sampled_from([1, 2, 3, 4, "1", "a", "ä", -1, 2**53, ""]) | st.integers(5, 10**6)
CAPABILITIES: st.SearchStrategy[Any] = st.sampled_from(
    [{}, {"elicitation": {}}, {"extensions": {TASKS: {}}}, {"elicitation": {}, "sampling": {}, "roots": {}}, [], None]
)
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def _described(capabilities: Any) -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }


METAS: st.SearchStrategy[Any] = (
    st.just({})
    | st.builds(lambda found: {"_meta": found}, CAPABILITIES.map(_described) | JUNK)
    | st.builds(lambda token: {"_meta": {"progressToken": token}}, IDS)
)
CALLS = st.sampled_from(
    [
        {"name": "echo", "arguments": {"text": "é"}},
        {"name": "soon", "arguments": {}},
        {"name": "soon", "arguments": {"steps": 4}},
        {"name": "hold"},
        {"name": "ask", "arguments": {}},
        {"name": "fail"},
    ]
)
BAD_CALLS = st.builds(
    lambda name, arguments: {"name": name, "arguments": arguments},
    st.sampled_from(["echo", "soon", "fail", "missing", ""]),
    JUNK,
)
PARAMS: dict[str, st.SearchStrategy[Any]] = {
    "initialize": st.builds(
        lambda version, capabilities: {
            **HELLO[0]["params"],
            "protocolVersion": version,
            "capabilities": capabilities,
        },
        st.sampled_from(["2024-11-05", "2025-06-18", "2025-11-25", MODERN, "1999-01-01", ""]),
        CAPABILITIES,
    ),
    "ping": st.just({}),
    "tools/list": st.just({}) | st.builds(lambda cursor: {"cursor": cursor}, JUNK),
    "tools/call": CALLS | BAD_CALLS,
    "resources/list": st.just({}),
    "resources/read": st.builds(lambda uri: {"uri": uri}, st.sampled_from(["notes://a", "notes://", "x", 1])),
    "resources/subscribe": st.just({"uri": "notes://a"}),
    "prompts/get": st.builds(lambda found: {"name": "greet", "arguments": found}, st.just({"name": "x"}) | JUNK),
    "completion/complete": JUNK.map(lambda found: {"ref": found, "argument": {"name": "name", "value": ""}}),
    "logging/setLevel": st.builds(lambda level: {"level": level}, st.sampled_from(["debug", "loud", None])),
    "server/discover": st.just({}),
    "subscriptions/listen": st.just({"notifications": {"toolsListChanged": True}}),
    "tasks/get": st.builds(lambda task: {"taskId": task}, JUNK),
    "nonsense": st.just({}),
}
REQUESTS = st.sampled_from([*PARAMS, *["tools/call"] * 10]).flatmap(
    lambda method: st.builds(
        lambda id_, params, meta: request(id_, method, **params, **meta), IDS, PARAMS[method], METAS
    )
)
NOTIFICATIONS = st.builds(
    lambda method, params: {"jsonrpc": "2.0", "method": method, "params": params},
    st.sampled_from(["notifications/initialized", "notifications/progress", "x"]),
    st.just({}) | st.dictionaries(st.text(max_size=4), JUNK, max_size=2),
)
CANCELS = st.builds(
    lambda id_: {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_}}, IDS
)
RESPONSES = st.builds(
    lambda id_, body: {"jsonrpc": "2.0", "id": id_, **body},
    st.integers(1, 4) | IDS,
    st.sampled_from([{"result": {"action": "accept", "content": {"text": "x"}}}, {"result": 1}])
    | st.builds(lambda found: {"error": found}, st.just({"code": 1, "message": "no"}) | JUNK),
)
MESSAGES = st.one_of(REQUESTS, REQUESTS, CANCELS, NOTIFICATIONS, RESPONSES).map(msgspec.json.encode)
BROKEN = st.sampled_from(
    [
        b"",
        b" \t",
        b"[]",
        b"{}",
        b"null",
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"1.0","id":7,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":7,"method":"ping","id":8}',
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}',
        b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}',
        b"[" * 500,
        b'{"a":' * 300 + b"1" + b"}" * 300,
        b"x" * (LIMIT + 500),
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
        b'[{"jsonrpc":"2.0","id":9,"method":"ping"}]',
    ]
) | st.binary(max_size=30).map(lambda data: data.replace(b"\n", b" "))
CUT = st.builds(lambda data, at: data[: int(at * len(data))], MESSAGES, st.floats(0, 1))
ASKING = [request("hello", "initialize", **{**HELLO[0]["params"], "capabilities": {"elicitation": {}}})]
GREETINGS: st.SearchStrategy[list[bytes]] = st.sampled_from(
    [[msgspec.json.encode(one) for one in messages] for messages in (HELLO, ASKING, HELLO[:1], [])]
)


class Script(NamedTuple):
    """What a client sends.

    Attributes:
        data: All of it.
        cuts: The positions at which it is cut into chunks.
        pauses: The steps of the scheduler before each chunk, in turns.
    """

    data: bytes
    cuts: Sequence[float]
    pauses: Sequence[int]

    def chunks(self) -> list[bytes]:
        """The chunks."""
        ends = sorted({int(cut * len(self.data)) for cut in self.cuts} | {0, len(self.data)})
        return [self.data[start:end] for start, end in itertools.pairwise(ends)]


SCRIPTS = st.builds(
    lambda greeting, lines, end, cuts, pauses: Script(end.join([*greeting, *lines, b""]), cuts, pauses),
    GREETINGS,
    st.lists(st.one_of(MESSAGES, MESSAGES, MESSAGES, BROKEN, CUT), min_size=6, max_size=25),
    st.sampled_from([b"\n", b"\n", b"\r\n"]),
    st.lists(st.floats(0, 1), max_size=10),
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
)


class Conversation:
    """The client's end of a connection: sends a script, then a last request, and leaves once that is answered.

    Attributes:
        answers: The answers of the server.
        asked: The requests of the server.
    """

    def __init__(self, script: Script) -> None:
        self._chunks = iter(script.chunks())
        self._pauses = itertools.cycle(script.pauses)
        self._probe: bytes | None = msgspec.json.encode(request("probe", "ping")) + b"\n"
        self._answered = trio.Event()
        self.answers: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []

    async def receive_some(self) -> bytes:
        """The next bytes for the server."""
        for _ in range(next(self._pauses)):
            await trio.lowlevel.checkpoint()
        for chunk in self._chunks:
            return chunk
        if self._probe is not None:
            probe, self._probe = self._probe, None
            return probe
        await self._answered.wait()
        return b""

    async def send_all(self, data: bytes) -> None:
        """Take bytes of the server."""
        await trio.lowlevel.checkpoint()
        assert data.endswith(b"\n")
        for line in data.splitlines():
            message: dict[str, Any] = msgspec.json.decode(line)
            if "method" in message:
                self.asked.append(message)
                continue
            assert ("result" in message) != ("error" in message)
            if message["id"] == "probe":
                self._answered.set()
            else:
                self.answers.append(message)


async def converse(script: Script) -> Conversation:
    """Serve a conversation to its end, as over stdio; nothing that it has begun is left."""
    ran = Ran()
    conversation = Conversation(script)
    channel = LineChannel(conversation.receive_some, conversation.send_all, LIMIT)
    with trio.fail_after(1000):
        async with app_of(ran).open() as engine:
            async with trio.open_nursery() as nursery:
                server = McpServer(engine, nursery)
                await serve_connection(
                    server,
                    channel,
                    engine.bind(transport="mcp"),
                    stopped=engine.stopped,
                    limits=engine.settings.mcp,
                    on_left=bool if server.tasks is None else server.tasks.cancel,
                )
                nursery.cancel_scope.cancel()
            assert engine.statistics().running == 0
    assert ran.begun == ran.ended
    return conversation


def expected(data: bytes) -> tuple[list[Request], int, set[Any]]:
    """What a script contains: its requests, the number of lines that get a refusal, and the keys of the ids that it cancels."""
    requests: list[Request] = []
    refused = 0
    cancelled: set[Any] = set()
    lines = LineBuffer(LIMIT)
    for line in [*lines.feed(data), *lines.finish()]:
        try:
            message = decode(line, max_bytes=LIMIT)
        except RemoteProtocolError:
            refused += 1
            continue
        if isinstance(message, Request):
            requests.append(message)
        elif isinstance(message, Notification) and message.method == "notifications/cancelled":
            found = msgspec.json.decode(message.params).get("requestId")
            cancelled.add(key_of(found) if isinstance(found, str | int) else None)
    return requests, refused, cancelled


def may_stay_unanswered(found: Request, cancelled: set[Any]) -> bool:
    """True for a request that its client may cancel, or that runs until its client has left."""
    name = None
    if found.method == "tools/call":
        params = msgspec.json.decode(found.params)
        name = params.get("name")
    return key_of(found.id) in cancelled or found.method in NEVER_ANSWERED or name in NEVER_ANSWERED


@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@hypothesis.given(script=SCRIPTS)
def test_any_messages_in_any_chunks(script: Script) -> None:
    """Each request has one answer and each line that is no message one refusal, a later request is answered, and no tool goes on."""
    conversation = trio.run(converse, script, clock=trio.testing.MockClock(autojump_threshold=0))
    requests, refused, cancelled = expected(script.data)
    unsure = [found for found in requests if may_stay_unanswered(found, cancelled)]
    number = len(conversation.answers)
    assert len(requests) + refused - len(unsure) <= number <= len(requests) + refused
    given = Counter(key_of(answer["id"]) for answer in conversation.answers if answer["id"] is not None)
    wanted = Counter(key_of(found.id) for found in requests)
    for found in requests:
        key = key_of(found.id)
        if wanted[key] == 1 and found not in unsure:
            assert given[key] >= 1  # a line that is no message may have had the same id
    assert "secret" not in str(conversation.answers)
