"""The order of the steps: the first one that fails decides, and what it leaves."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
import trio

from carmy_engine import AgentContext, Settings
from tests.engine.kit import Refuse, bench, code, read, request, told

GOOD = {"tag": "t"}


async def test_an_unknown_tool_beats_every_policy():
    """A policy is not asked about a tool that does not exist."""
    policy = Refuse()
    async with bench(policies=[policy]) as b:
        assert await b.code("nobody", request_id="") == "TOOL_NOT_FOUND"
    assert "nobody" not in policy.asked


async def test_a_subset_beats_every_policy():
    """A tool that a view leaves out is refused before any policy is asked."""
    policy = Refuse()
    async with bench(policies=[policy]) as b:
        assert await b.on(b.engine.subset("echo")).code("write") == "TOOL_NOT_PERMITTED"
    assert policy.asked == []


async def test_the_confirmation_policy_is_last():
    """A missing confirmation is reported after every other policy and the arguments: a caller without permission learns nothing of it."""
    async with bench(policies=[Refuse()]) as b:
        for permissions in ((), {"confirm:destructive"}):
            assert await b.of(permissions=permissions).code("destructive", {"tag": 1}) == "NO"
    async with bench() as b:
        assert await b.code("destructive", {"tag": 1}) == "INVALID_ARGUMENTS"
        assert await b.code("destructive", {"tag": "t"}) == "CONFIRMATION_REQUIRED"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"request_id": "", "timeout_ms": -1, "arguments": {"x": 1}}, "INVALID_ID"),
        ({"timeout_ms": -1, "arguments": {"x": 1}}, "INVALID_REQUEST"),
        ({"arguments": {"x": 1}}, "INVALID_ARGUMENTS"),
    ],
)
async def test_policies_then_ids_then_arguments(fields, expected):
    """After the policies come the ids, then the limit, then the arguments."""
    async with bench(policies=[Refuse("FIRST")]) as b:
        assert code(await b.engine.execute(request("write", **fields))) == "FIRST"
    async with bench() as b:
        assert code(await b.engine.execute(request("write", **fields))) == expected


async def test_arguments_beat_a_cancelled_scope():
    """A call with bad arguments is refused even in a cancelled scope; one with good ones raises the cancel."""
    async with bench() as b:
        with trio.CancelScope() as scope:
            scope.cancel()
            assert await b.code("echo") == "INVALID_ARGUMENTS"
            await b.call("echo", {"text": "a"})
        assert scope.cancelled_caught


async def test_a_cancelled_scope_beats_capacity():
    """A call in a cancelled scope is cancelled, not refused for want of room."""
    async with bench(settings=Settings(max_executions=1)) as b, trio.open_nursery() as nursery:
        gate = b.gate()
        b.start(nursery, "read", {"then": "wait", "gate": gate})
        await b.arrived(gate)
        with trio.CancelScope() as scope:
            scope.cancel()
            await b.call("echo", {"text": "a"})
        assert scope.cancelled_caught
        assert b.sink.records[-1].error_code == "CANCELLED"
        await b.open(gate)


async def test_capacity_beats_the_reservation():
    """A full engine refuses a replay as well: nothing is looked up for a call that has no room."""
    async with bench(settings=Settings(max_executions=1)) as b, trio.open_nursery() as nursery:
        gate = b.gate()
        await b.call("write", GOOD, request_id="r")
        b.start(nursery, "read", {"then": "wait", "gate": gate})
        await b.arrived(gate)
        assert await b.code("write", GOOD, request_id="r") == "OVERLOADED"
        await b.open(gate)


async def test_the_reservation_beats_the_turn():
    """A conflict is answered at once, not after waiting for a turn."""
    async with bench() as b, trio.open_nursery() as nursery:
        gate = b.gate()
        await b.call("serial_write", GOOD, request_id="r")
        b.start(nursery, "serial_write", {"then": "wait", "gate": gate})
        await b.arrived(gate)
        assert await b.code("serial_write", {"tag": "other"}, request_id="r") == "IDEMPOTENCY_CONFLICT"
        await b.open(gate)


async def test_nothing_before_the_reservation_touches_the_store():
    """Refused calls never reach the store, so a store that is down does not hide why they are refused."""

    class NoStore:
        async def aclose(self) -> None:
            pass

    async with bench(store=NoStore()) as b:
        cases: list[tuple[str, dict[str, Any], str]] = [
            ("nobody", {}, "TOOL_NOT_FOUND"),
            ("destructive", {}, "CONFIRMATION_REQUIRED"),
            ("write", {"arguments": {"x": 1}}, "INVALID_ARGUMENTS"),
            ("write", {"timeout_ms": 0}, "INVALID_REQUEST"),
        ]
        for name, fields, expected in cases:
            assert code(await b.engine.execute(request(name, request_id="r", **fields))) == expected


@pytest.mark.parametrize("timeout_ms", [0, -1, math.nan, math.inf, -math.inf, True, "100", [], {}])
async def test_a_timeout_is_a_positive_number(timeout_ms):
    """A timeout that is no positive finite number is refused as an invalid request."""
    async with bench() as b:
        result = await b.call("write", GOOD, timeout_ms=timeout_ms)
        assert code(result) == "INVALID_REQUEST"
        assert told(result)["reason"]
        assert await b.effects("t") == 0


async def test_a_timeout_may_be_any_integer():
    """One that no float can hold is no limit beside the engine's own."""
    async with bench() as b:
        assert await b.code("write", GOOD, timeout_ms=10**400) == "ok"


@pytest.mark.parametrize("request_id", ["", "x" * 257, "é" * 129, "\ud800", 7, True, b"r"])
async def test_a_request_id_is_a_short_text(request_id):
    """A request_id that is no text of 1-256 bytes of UTF-8 is ``INVALID_ID``."""
    async with bench() as b:
        assert await b.code("write", GOOD, request_id=request_id) == "INVALID_ID"
        assert await b.effects("t") == 0


@pytest.mark.parametrize("arguments", [None, {}, msgspec.Raw(b"null"), msgspec.Raw(b"{}"), msgspec.Raw(b" {} ")])
async def test_no_arguments_are_an_empty_object(arguments):
    """Missing arguments, null and an empty object are the same, in process and as bytes."""
    async with bench() as b:
        assert code(await b.engine.execute(request("read", arguments))) == "ok"


@pytest.mark.parametrize("raw", [b"[]", b"1", b'"{}"', b"true"])
async def test_other_arguments_are_invalid(raw):
    """Arguments that are an array or a scalar are ``INVALID_ARGUMENTS``."""
    async with bench() as b:
        assert code(await b.engine.execute(request("read", msgspec.Raw(raw)))) == "INVALID_ARGUMENTS"


async def test_every_refusal_has_one_record():
    """Refusals are recorded like executions, once, with the code and without a duration."""
    async with bench(policies=[]) as b:
        cases: list[tuple[str, dict[str, Any]]] = [
            ("nobody", {}),
            ("destructive", {}),
            ("echo", {}),
            ("write", {"request_id": ""}),
        ]
        for name, fields in cases:
            before = len(b.sink)
            result = await b.call(name, **fields)
            (record,) = b.sink.records[before:]
            assert record.error_code == code(result)
            assert record.execution_id == result.execution_id
            assert record.duration_ms == 0
            assert record.status == "failed"
            assert record.tool == name
            assert record.effect == (None if name == "nobody" else b.engine._pipeline.registry.specs[name].effect)


async def test_records_hold_no_data():
    """Arguments and outputs never enter a record."""
    async with bench() as b:
        await b.call("echo", {"text": "xyzzy-secret"})
        await b.call("echo", {"text": 7, "xyzzy-secret": 1})
        for record in b.sink:
            assert "xyzzy-secret" not in repr(record)


async def test_a_policy_that_breaks_is_a_crash_of_that_call():
    """A policy that raises anything undeclared refuses the call as ``TOOL_PANIC``, and the tool does not run."""

    class Broken:
        def check(self, context: object, spec: object) -> None:
            raise LookupError("hunter2")

        def is_listed(self, context: object, spec: object) -> bool:
            return True

    async with bench(policies=[Broken()]) as b:
        result = await b.call("write", GOOD)
        assert code(result) == "TOOL_PANIC"
        assert "hunter2" not in str(result.error)
        assert await b.effects("t") == 0


async def test_the_tool_sees_its_context(mock_clock):
    """A tool receives the bound context, its ids, and the seconds that remain."""
    seen: list[AgentContext] = []

    @read
    async def look(ctx: AgentContext) -> None:
        seen.append(ctx)
        mock_clock.jump(1)
        assert ctx.remaining() == 4
        mock_clock.jump(10)
        assert ctx.remaining() == 0

    async with bench(look) as b:
        host = AgentContext(
            principal="ana",
            session="s",
            permissions=frozenset({"p"}),
            metadata={"k": 1},
            thread_id="t",
            run_id="r",
            node_path="a/b",
            attempt=2,
            caller_id="c",
            call_id="m",
        )
        result = await b.on(b.engine.bind(context=host, transport="http")).call("look", request_id="q", timeout_ms=5000)
    (context,) = seen
    assert (context.principal, context.session, context.permissions) == ("ana", "s", {"p"})
    assert dict(context.metadata) == {"k": 1}
    assert (context.thread_id, context.run_id, context.node_path, context.attempt) == ("t", "r", "a/b", 2)
    assert (context.caller_id, context.call_id, context.transport) == ("c", "m", "http")
    assert (context.execution_id, context.request_id) == (result.execution_id, "q")
    assert not context.cancellation.cancelled


@pytest.mark.parametrize(
    ("engine", "own", "asked", "expected"),
    [(30, 5, None, 5), (3, 5, None, 3), (30, 5, 2000, 2), (30, None, 60_000, 30)],
)
async def test_the_shortest_limit_holds(engine, own, asked, expected, autojump_clock):
    """The deadline is the least of the engine's, the tool's and the request's limit."""
    from carmy_engine import tool

    @tool(effect="read", timeout=own, parallel_safe=True, register=False)
    async def slow() -> None:
        await trio.sleep_forever()

    async with bench(slow, settings=Settings(timeout_secs=engine)) as b:
        start = trio.current_time()
        result = await b.call("slow", timeout_ms=asked)
        assert code(result) == "TIMEOUT"
        assert trio.current_time() - start == pytest.approx(expected)
        assert result.duration_ms == pytest.approx(expected * 1000)


async def test_nothing_that_a_request_holds_sets_the_context():
    """Metadata of a request is data: it changes neither principal nor permissions."""
    async with bench() as b:
        fields = {"metadata": {"principal": "root", "permissions": ["confirm:destructive"]}}
        assert (await b.call("whoami", **fields)).data["principal"] is None
        assert await b.code("destructive", **fields) == "CONFIRMATION_REQUIRED"


async def test_an_execution_is_over_when_it_is_answered():
    """When `execute` returns, nothing of the execution runs any more."""
    async with bench() as b:
        for name in ("echo", "write", "serial_write", "thread_write"):
            await b.call(name, {"text": "a"} if name == "echo" else {})
            assert b.running == 0
