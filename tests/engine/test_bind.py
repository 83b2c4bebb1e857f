"""Views of an engine: on whose behalf, with which tools, and what belongs to whom."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from carmy_engine import AgentContext, Cause, DeclarationError
from carmy_engine.stores.memory import MemoryStore
from tests.engine.kit import bench, code


async def test_an_unbound_engine_calls_as_nobody():
    """Without a binding there is no principal, no session and no permission."""
    async with bench() as b:
        seen = (await b.call("whoami")).data
    assert (seen["principal"], seen["session"], seen["permissions"]) == (None, None, [])
    assert seen["transport"] == "in_process"


async def test_bindings_can_be_chained():
    """What a later binding does not name stays as it was; what it names is replaced."""
    async with bench() as b:
        first = b.engine.bind(principal="ana", permissions={"p", "q"}, transport="http")
        second = first.bind(session="s", permissions=["r"])
        seen = (await b.on(second).call("whoami")).data
        assert (seen["principal"], seen["session"], seen["permissions"], seen["transport"]) == (
            "ana",
            "s",
            ["r"],
            "http",
        )
        assert (await b.on(first).call("whoami")).data["permissions"] == ["p", "q"]
        assert first.bind(permissions=()).context.permissions == frozenset()


async def test_a_whole_context_can_be_bound():
    """A context from an authenticator is bound at once, and keeps the transport of the view."""
    async with bench() as b:
        base = b.engine.bind(transport="websocket")
        view = base.bind(context=AgentContext(principal="ana", permissions=frozenset({"p"})))
        seen = (await b.on(view).call("whoami")).data
    assert (seen["principal"], seen["permissions"], seen["transport"]) == ("ana", ["p"], "websocket")


@pytest.mark.parametrize("given", [{"principal": 5}, {"session": 5}])
async def test_callers_have_names(given: Any):
    """A number in place of a principal or a session is refused where it is given, and not by a store later on."""
    with pytest.raises(TypeError, match="must be strings"):
        AgentContext(**given)
    async with bench() as b:
        with pytest.raises(TypeError, match="must be strings"):
            b.engine.bind(**given)


def test_permissions_are_a_set_of_texts():
    """One text in place of a set is a mistake, and refused: it would be read letter by letter."""
    with pytest.raises(TypeError, match="permissions"):
        AgentContext(permissions="admin")  # type: ignore[arg-type]


async def test_bind_refuses_one_text_as_permissions():
    """The same for a binding."""
    async with bench() as b:
        with pytest.raises(TypeError, match="permissions"):
            b.engine.bind(permissions="admin")


async def test_a_subset_narrows_for_good():
    """A subset lists and calls its tools only; a subset of a subset cannot widen it; the engine is as before."""
    async with bench() as b:
        some = b.engine.subset("echo", "write", "read")
        assert [spec.name for spec in (await some.catalog()).tools] == ["echo", "read", "write"]
        assert await b.on(some).code("echo", {"text": "a"}) == "ok"
        result = await b.on(some).refused("TOOL_NOT_PERMITTED", "none")
        assert result.error.category == "permission"
        fewer = some.subset("echo")
        assert await b.on(fewer).code("write") == "TOOL_NOT_PERMITTED"
        with pytest.raises(DeclarationError, match="none"):
            fewer.subset("none")
        with pytest.raises(DeclarationError, match="write"):
            fewer.subset("write")
        assert await b.on(fewer.bind(principal="ana")).code("write") == "TOOL_NOT_PERMITTED"
        assert await b.code("none") == "ok"


async def test_an_unknown_tool_suggests_only_what_the_view_has():
    """Names that a view leaves out are not suggested through it."""
    async with bench() as b:
        result = await b.on(b.engine.subset("read")).refused("TOOL_NOT_FOUND", "ecko")
        assert "echo" not in str(result.error)


async def test_catalogs_of_equal_views_are_equal():
    """Views with the same tools have the same document and version; other ones differ."""
    async with bench() as b:
        one, two = await b.engine.subset("echo", "read").catalog(), await b.engine.subset("read", "echo").catalog()
        assert one.version == two.version
        assert one.version != (await b.engine.catalog()).version


OWNERS = [
    # who started it, who asks, whether it is theirs
    ({"principal": "ana"}, {"principal": "ana"}, True),
    ({"principal": "ana", "session": "s"}, {"principal": "ana", "session": "t"}, True),
    ({"principal": "ana"}, {"principal": "bo"}, False),
    ({"principal": "ana"}, {}, False),
    ({}, {"principal": "ana"}, False),
    ({"session": "s"}, {"session": "s"}, True),
    ({"session": "s"}, {"session": "t"}, False),
    ({"session": "s"}, {}, False),
]


@pytest.mark.parametrize(("owner", "asking", "allowed"), OWNERS)
async def test_executions_belong_to_their_principal(owner, asking, allowed):
    """Only the same principal (or the same anonymous session) sees or cancels an execution; the engine itself sees all."""
    async with bench() as b, trio.open_nursery() as nursery:
        gate = b.gate()
        call = b.on(b.engine.bind(**owner)).start(nursery, "read", {"then": "wait", "gate": gate}, request_id="r")
        await b.arrived(gate)
        execution_id = b.running_id("read")
        view = b.engine.bind(**asking) if asking else b.engine.bind(session=None)
        summary = view.lookup(execution_id)
        assert (summary is not None) is allowed
        if summary is not None:
            assert (summary.state, summary.tool, summary.request_id) == ("running", "read", "r")
            assert summary.result is None
        everything = b.engine.lookup(execution_id)
        assert everything is not None
        assert everything.principal == owner.get("principal")
        assert view.cancel(execution_id) is allowed
        if not allowed:
            assert b.engine.cancel(execution_id)
        result = await call.wait()
        assert code(result) == "CANCELLED"
        assert (view.lookup(execution_id) is not None) is allowed


async def test_cancelling_what_does_not_run_has_no_effect():
    """Unknown ids, finished executions and those being cancelled already are False, and nothing happens."""
    async with bench() as b:
        assert not b.engine.cancel("exec_unknown")
        result = await b.call("read")
        assert not b.engine.cancel(result.execution_id)
        async with trio.open_nursery() as nursery:
            gate = b.gate()
            call = b.start(nursery, "read", {"then": "wait", "gate": gate})
            await b.arrived(gate)
            execution_id = b.running_id("read")
            assert b.engine.cancel(execution_id, Cause.OPERATOR)
            assert not b.engine.cancel(execution_id)
            assert (await call.wait()).error.details["cause"] == "operator"


async def test_looking_up_a_finished_execution():
    """A finished execution can be looked up with its result, a refused one as well, an unknown one not."""
    async with bench() as b:
        done = await b.call("echo", {"text": "a"})
        summary = b.engine.lookup(done.execution_id)
        assert summary is not None
        assert summary.state == "finished"
        assert summary.result is not None
        assert summary.result.data == "a"
        failed = await b.call("write", {"then": "error"})
        summary = b.engine.lookup(failed.execution_id)
        assert summary is not None
        assert summary.result is not None
        assert code(summary.result) == "OUT_OF_STOCK"
        assert b.engine.lookup("exec_unknown") is None


async def test_leaving_is_not_an_answer():
    """An execution whose caller went away can be looked up, but has no result, since none was returned."""
    async with bench() as b, trio.open_nursery() as nursery:
        gate = b.gate()
        call = b.start(nursery, "write", {"then": "wait", "gate": gate})
        await b.arrived(gate)
        execution_id = b.running_id("write")
        await call.leave()
        summary = b.engine.lookup(execution_id)
        assert summary is not None
        assert (summary.state, summary.result) == ("finished", None)


async def test_what_leaving_means_may_be_known_late():
    """A function that is bound as what leaving means is asked when that happens; a write remains in doubt for that reason."""
    meanings = [Cause.DISCONNECT]
    async with bench() as b, trio.open_nursery() as nursery:
        gate = b.gate()
        view = b.on(b.engine.bind(gone=lambda: meanings[-1]))
        call = view.start(nursery, "write", {"then": "wait", "gate": gate}, request_id="r")
        await b.arrived(gate)
        meanings.append(Cause.CALLER)
        await call.leave()
        assert b.sink.records[-1].cause is Cause.CALLER
        again = await b.call("write", {"then": "wait", "gate": gate}, request_id="r")
        assert again.error is not None
        assert (again.error.code, again.error.details["cause"]) == ("EXECUTION_UNCERTAIN", "caller")


async def test_a_replay_keeps_the_first_execution_findable():
    """A replay adds nothing to look up: its answer is the first execution's."""
    async with bench() as b:
        first = await b.call("write", request_id="r")
        await b.call("write", request_id="r")
        summary = b.engine.lookup(first.execution_id)
        assert summary is not None
        assert summary.result is not None
        assert not summary.result.replayed


async def test_cancelling_what_has_ended_but_is_not_recorded_yet():
    """Once the tool has ended it is too late to cancel: `cancel` returns False, and the answer is the tool's."""
    recording, go_on = trio.Event(), trio.Event()

    class Slow(MemoryStore):
        async def complete(self, identity, execution_id, outcome, finished_at):
            recording.set()
            await go_on.wait()
            return await super().complete(identity, execution_id, outcome, finished_at)

    async with bench(store=Slow()) as b, trio.open_nursery() as nursery:
        call = b.start(nursery, "write", request_id="r")
        await recording.wait()
        assert not b.engine.cancel(b.running_id("write"))
        go_on.set()
        assert code(await call.wait()) == "ok"
        assert b.sink.records[-1].cause is None
