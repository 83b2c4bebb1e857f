"""Asking a person about one call."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from carmy_engine import AgentContext, AgentError, RateLimit, RequireToolPermission, ToolSpec, tool
from tests.engine.kit import Bench, bench, code

Asked = list[tuple[str, bytes]]


def person(answer: object, asked: Asked) -> Any:
    """Asks a person who answers so."""

    async def confirm(spec: ToolSpec, arguments: bytes) -> bool:
        asked.append((spec.name, arguments))
        await trio.lowlevel.checkpoint()
        return answer  # type: ignore[return-value]

    return confirm


def asking(b: Bench, answer: object, asked: Asked, **who: Any) -> Bench:
    """The bench of a caller whose person is asked, and answers so."""
    return b.on(b.engine.bind(confirm=person(answer, asked), **who))


async def test_a_yes_counts_for_one_call():
    """The person is asked about tool and arguments, each time anew; the tool sees the permission, and no other caller gets it."""

    @tool(effect="read", confirmation="required", register=False)
    async def seen(ctx: AgentContext) -> list[str]:
        return sorted(ctx.permissions)

    asked: Asked = []
    async with bench(seen) as b:
        ana = asking(b, True, asked, principal="ana", permissions={"p"})
        assert (await ana.call("destructive", {"tag": "t"})).data == "done"
        assert (await ana.call("seen")).data == ["confirm:seen", "p"]
        assert (await ana.call("destructive", {"tag": "t"})).data == "done"
        assert asked == [("destructive", b'{"tag":"t"}'), ("seen", b"{}"), ("destructive", b'{"tag":"t"}')]
        assert await b.code("destructive", {"tag": "t"}) == "CONFIRMATION_REQUIRED"
        assert await b.effects("t") == 2


@pytest.mark.parametrize("answer", [False, None, 1, "yes"])
async def test_anything_but_a_yes(answer):
    """Is refused like a call that no person could be asked about, and leaves nothing under its request_id."""
    asked: Asked = []
    async with bench() as b:
        refused = await asking(b, answer, asked).call("destructive", {"tag": "t"}, request_id="r")
        assert code(refused) == "CONFIRMATION_REQUIRED"
        assert refused.next_actions
        assert len(asked) == 1
        assert (await asking(b, True, asked).call("destructive", {"tag": "t"}, request_id="r")).replayed is False
        assert await b.effects("t") == 1


async def test_nobody_is_asked_in_vain():
    """No question about a call that would be refused anyway, needs no confirmation, or has it already."""
    asked: Asked = []
    policies = [RequireToolPermission(), RateLimit(3, 60)]
    async with bench(policies=policies) as b:
        everything = {"tool:destructive", "tool:echo"}
        nobody = asking(b, True, asked)
        assert await nobody.code("destructive", {"tag": "t"}) == "FORBIDDEN"
        ana = asking(b, True, asked, principal="ana", permissions=everything)
        assert await ana.code("destructive", {"tug": "t"}) == "INVALID_ARGUMENTS"
        assert await ana.code("destructive", {"tag": "t"}, request_id="x" * 300) == "INVALID_ID"
        assert await ana.code("echo", {"text": "t"}) == "ok"
        assert await ana.code("destructive", {"tag": "t"}) == "RATE_LIMITED"
        assert await ana.code("absent") == "TOOL_NOT_FOUND"
        ben = asking(b, True, asked, principal="ben", permissions={*everything, "confirm:destructive"})
        assert await ben.code("destructive", {"tag": "t"}) == "ok"
        b.engine.stop()
        cleo = asking(b, True, asked, principal="cleo", permissions=everything)
        assert await cleo.code("destructive", {"tag": "t"}) == "SHUTTING_DOWN"
        assert asked == []


async def test_a_question_counts_as_one_call():
    """A budget of one call is enough for a call and the question about it."""
    asked: Asked = []
    async with bench(policies=[RateLimit(1, 60)]) as b:
        assert await asking(b, True, asked).code("destructive", {"tag": "t"}) == "ok"


async def test_waiting_for_a_person_holds_nothing():
    """Neither a turn nor a request_id: others call the same tool meanwhile, even under the same request_id."""
    waiting, answered = trio.Event(), trio.Event()

    async def confirm(spec: ToolSpec, arguments: bytes) -> bool:
        waiting.set()
        await answered.wait()
        return True

    async with bench() as b, trio.open_nursery() as nursery:
        slow = b.on(b.engine.bind(confirm=confirm))
        results: list[str] = []

        async def ask() -> None:
            results.append(await slow.code("destructive", {"tag": "t"}, request_id="r", timeout_ms=5_000))

        nursery.start_soon(ask)
        await waiting.wait()
        assert b.engine.statistics().running == 0
        agreed = b.of(permissions={"confirm:destructive"})
        with trio.fail_after(4):
            assert await agreed.code("destructive", {"tag": "t"}, request_id="r") == "ok"
        answered.set()
    assert results == ["ok"]  # the replay of what the other has done
    assert [record.replayed for record in b.sink.records if record.tool == "destructive"] == [False, True]


async def test_a_slow_answer_is_no_timeout(autojump_clock):
    """The clock of the call starts when the person has agreed."""

    async def confirm(spec: ToolSpec, arguments: bytes) -> bool:
        await trio.sleep(100)
        return True

    async with bench() as b:
        slow = b.on(b.engine.bind(confirm=confirm))
        assert await slow.code("destructive", {"tag": "t"}, timeout_ms=1_000) == "ok"


@pytest.mark.parametrize("beside", [True, False])
async def test_a_caller_that_leaves_while_its_person_is_asked(beside):
    """The question is cancelled with the call, however it is asked; nothing has run, as the record states."""
    waiting = trio.Event()

    async def confirm(spec: ToolSpec, arguments: bytes) -> bool:
        waiting.set()
        if beside:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                await trio.sleep_forever()
        await trio.sleep_forever()
        raise AssertionError

    async with bench() as b:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.on(b.engine.bind(confirm=confirm)).code, "destructive", {"tag": "t"})
            await waiting.wait()
            nursery.cancel_scope.cancel()
        (record,) = b.sink.records
        assert (record.tool, record.error_code) == ("destructive", "CANCELLED")
        assert await b.effects("t") == 0
        assert b.engine.statistics().running == 0


async def test_a_question_that_fails():
    """What goes wrong in asking ends that call, in words of its own if it has any, and runs nothing."""

    async def declared(spec: ToolSpec, arguments: bytes) -> bool:
        raise AgentError("NOBODY_HOME", "there is nobody", "capacity")

    async def broken(spec: ToolSpec, arguments: bytes) -> bool:
        raise RuntimeError("secret")

    async def broken_beside(spec: ToolSpec, arguments: bytes) -> bool:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broken, spec, arguments)
        raise AssertionError

    async with bench() as b:
        assert await b.on(b.engine.bind(confirm=declared)).code("destructive", {"tag": "t"}) == "NOBODY_HOME"
        for confirm in (broken, broken_beside):
            crashed = await b.on(b.engine.bind(confirm=confirm)).call("destructive", {"tag": "t"})
            assert crashed.error.category == "internal"
            assert "secret" not in repr(crashed.error)
        assert await b.effects("t") == 0


async def test_asking_whichever_way_a_call_is_made():
    """Streams and typed calls ask as well, and a binding made of one that asks does too."""

    @tool(effect="destructive", register=False)
    async def drop(name: str) -> str:
        return name

    asked: Asked = []
    async with bench(drop) as b:
        ana = asking(b, True, asked, principal="ana")
        *_, last = await ana.events("drop", {"name": "x"})
        assert last.result.data == "x"
        bound = b.engine.bind(principal="ben", confirm=person(True, asked))
        assert await bound.call(drop, name="y") == "y"
        assert await bound.subset("drop").bind(session="s").call(drop, name="z") == "z"
        assert [arguments for _, arguments in asked] == [b'{"name":"x"}', b'{"name":"y"}', b'{"name":"z"}']
