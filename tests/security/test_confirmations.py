"""Confirmations that are replayed, altered, expired, foreign, forged or lost."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from carmy_engine import AgentContext, AgentError, ExecutionRequest, OutcomeUnknownError, Settings, tool
from carmy_engine.abc import StoreError
from carmy_engine.stores.memory import MAX_PENDING_CONFIRMATIONS, MemoryStore
from tests.engine.kit import Bench, bench, code, told
from tests.support.http import JSON, front_end, serving
from tests.support.vault import TOKENS, WAYS, burn, burnt, only_confirmation, page

ANA, BEN = {"authorization": "Bearer token-of-ana"}, {"authorization": "Bearer token-of-ben"}
HOST = {"authorization": "Bearer token-of-the-page"}


@pytest.fixture(params=["hypercorn", "native"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the front end."""
    token = front_end.set(request.param)
    yield request.param
    front_end.reset(token)


async def approved(b: Bench, **who: Any) -> Bench:
    """A caller whose request ``destructive(tag="t")`` has been approved."""
    caller = b.of(**who)
    await b.engine.answer_confirmation(
        told(await caller.call("destructive", {"tag": "t"}))["confirmation_id"], approve=True
    )
    return caller


async def test_replayed():
    """An approval counts once: of twenty equal requests at the same time one runs, and no later one does."""
    async with bench() as b:
        ana = await approved(b, principal="ana")
        codes: list[str] = []

        async def call(number: int) -> None:
            codes.append(await ana.code("destructive", {"tag": "t"}, request_id=f"r{number}" if number % 2 else None))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(call, number)
        assert sorted(codes) == ["CONFIRMATION_REQUIRED"] * 19 + ["ok"]
        assert await ana.code("destructive", {"tag": "t"}) == "CONFIRMATION_REQUIRED"
        assert await b.effects("t") == 1


async def test_altered():
    """Other arguments, metadata or another tool make another request; the spelling of the same one does not matter."""

    @tool(effect="destructive", register=False)
    async def drop(tag: str, count: int = 1) -> str:
        return f"{tag} {count}"

    async with bench(drop) as b:
        ana = b.of(principal="ana")
        question = told(await ana.call("drop", {"tag": "t", "count": 2}))
        await b.engine.answer_confirmation(question["confirmation_id"], approve=True)
        for altered in ({"tag": "t"}, {"tag": "t", "count": 3}, {"tag": "T", "count": 2}):
            assert await ana.code("drop", altered) == "CONFIRMATION_REQUIRED"
        metadata = {"confirmed": True, "confirmation_id": question["confirmation_id"]}
        assert await ana.code("drop", {"tag": "t", "count": 2}, metadata=metadata) == "CONFIRMATION_REQUIRED"
        assert await ana.code("destructive", {"tag": "t"}) == "CONFIRMATION_REQUIRED"
        forged = {"tag": "t", "count": 2, "confirmation_id": question["confirmation_id"], "approve": True}
        assert await ana.code("drop", forged) == "INVALID_ARGUMENTS"
        assert (await ana.call("drop", {"count": 2.0, "tag": "t"})).data == "t 2"


@pytest.mark.parametrize(
    ("owner", "others"),
    [
        ({"principal": "ana"}, [{"principal": "ben"}, {}, {"session": "ana"}, {"principal": "transport:x"}]),
        ({"session": "s1"}, [{"session": "s2"}, {}, {"principal": "s1"}, {"principal": "s1", "session": "s1"}]),
        ({"transport": "http"}, [{"transport": "stdio"}, {"session": "http"}, {"principal": "http"}]),
    ],
)
async def test_foreign(owner, others):
    """The approval of one caller is of no use to another; sessions of one principal share it."""
    async with bench() as b:
        mine = await approved(b, **owner)
        for who in others:
            assert await b.of(**who).code("destructive", {"tag": "t"}) == "CONFIRMATION_REQUIRED"
        assert await b.effects("t") == 0
        assert await mine.code("destructive", {"tag": "t"}) == "ok"
        assert await b.effects("t") == 1


async def test_a_session_of_the_same_principal():
    """Has the same person behind it."""
    async with bench() as b:
        await approved(b, principal="ana", session="s1")
        assert await b.of(principal="ana", session="s2").code("destructive", {"tag": "t"}) == "ok"


async def test_expired():
    """A question that is too old cannot be answered, and an approval that is too old counts no more; a denial neither."""
    async with bench(settings=Settings(confirmation_timeout_secs=60)) as b:
        clock = Clock(b)
        ana = b.of(principal="ana")
        first = told(await ana.call("destructive", {"tag": "t"}))
        assert first["expires_in"] == 60
        clock.now += 45
        assert told(await ana.call("destructive", {"tag": "t"})) == {**first, "expires_in": 15}
        clock.now += 15
        assert await refusal(b, first["confirmation_id"], approve=True) == "CONFIRMATION_NOT_FOUND"
        second = told(await ana.call("destructive", {"tag": "t"}))
        assert second["confirmation_id"] != first["confirmation_id"]
        clock.now += 59
        await b.engine.answer_confirmation(second["confirmation_id"], approve=True)
        clock.now += 60
        third = told(await ana.call("destructive", {"tag": "t"}))
        assert third["confirmation_id"] != second["confirmation_id"]
        await b.engine.answer_confirmation(third["confirmation_id"], approve=False)
        assert await ana.code("destructive", {"tag": "t"}) == "CONFIRMATION_DENIED"
        clock.now += 60
        assert await ana.code("destructive", {"tag": "t"}) == "CONFIRMATION_REQUIRED"
        assert await b.effects("t") == 0


async def test_expired_between_the_look_and_the_run():
    """An approval that expires while the call waits for its turn is not used."""
    turns = Turns()
    async with bench(turns.tool) as b, trio.open_nursery() as nursery:
        clock = Clock(b)
        ana = await turns.approved(b, "x")
        nursery.start_soon(turns.hold, b)
        await turns.begun.wait()
        late: list[Any] = []

        async def call() -> None:
            late.append(await ana.call("serial", {"name": "x"}, request_id="r"))
            nursery.cancel_scope.cancel()

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        clock.now += 600
        turns.go_on.set()
        await trio.sleep_forever()
    assert code(late[0]) == "CONFIRMATION_REQUIRED"
    assert late[0].next_actions
    assert turns.ran == ["held"]


async def test_answers():
    """The same answer twice is one; a denial takes an approval back and is final; used and unknown ids are not found."""
    async with bench() as b:
        ana = b.of(principal="ana")
        question = told(await ana.call("destructive", {"tag": "t"}))["confirmation_id"]
        first = await b.engine.answer_confirmation(question, approve=True)
        assert await b.engine.answer_confirmation(question, approve=True) == first
        await b.engine.answer_confirmation(question, approve=False)
        assert await refusal(b, question, approve=True) == "CONFIRMATION_DENIED"
        assert await ana.code("destructive", {"tag": "t"}) == "CONFIRMATION_DENIED"
        ben = await approved(b, principal="ben")
        used = [entry.confirmation_id for entry in await b.engine.confirmations() if entry.principal == "ben"]
        assert await ben.code("destructive", {"tag": "t"}) == "ok"
        for confirmation_id in (*used, "conf_0", "", "x" * 3000):
            assert await refusal(b, confirmation_id, approve=True) == "CONFIRMATION_NOT_FOUND"
        assert await b.effects("t") == 1


async def test_who_may_answer():
    """Only callers with the permission list and answer, which then include their own calls; the answer is on record."""
    async with bench() as b:
        ana = b.of(principal="ana", permissions={"confirmations:list", "confirm:other", "tool:destructive"})
        question = told(await ana.call("destructive", {"tag": "t"}))["confirmation_id"]
        for who in ({"principal": "ana"}, {"principal": "ben", "permissions": {"confirmations:answers"}}, {}):
            with pytest.raises(AgentError, match="FORBIDDEN"):
                await b.engine.bind(**who).confirmations()
            with pytest.raises(AgentError, match="FORBIDDEN"):
                await b.engine.bind(**who).answer_confirmation(question, approve=True)
        trusted = b.engine.bind(principal="ana", permissions={"confirmations:answer"})
        await trusted.answer_confirmation(question, approve=True)
        assert await ana.code("destructive", {"tag": "t"}) == "ok"
        assert [record.confirmed_by for record in b.sink.records] == [None, "ana"]


async def test_the_tool_sees_the_permission_of_this_call_alone():
    """The approved call has the permission in its context, and no other has."""

    @tool(effect="read", confirmation="required", register=False)
    async def careful(ctx: AgentContext) -> list[str]:
        return sorted(ctx.permissions)

    async with bench(careful) as b:
        ana = b.of(principal="ana", permissions={"p"})
        await b.engine.answer_confirmation(told(await ana.call("careful"))["confirmation_id"], approve=True)
        assert (await ana.call("careful")).data == ["confirm:careful", "p"]
        assert await ana.code("careful") == "CONFIRMATION_REQUIRED"


async def test_a_call_that_did_not_run_uses_nothing_up():
    """Refused for lack of room, cancelled, or out of time before its turn: the approval still counts."""
    turns = Turns()
    async with bench(turns.tool, settings=Settings(max_executions=2)) as b, trio.open_nursery() as nursery:
        ana = await turns.approved(b, "x")
        nursery.start_soon(turns.hold, b)
        await turns.begun.wait()
        timed_out = await ana.call("serial", {"name": "x"}, timeout_ms=1, request_id="r")
        assert (code(timed_out), told(timed_out)["phase"]) == ("TIMEOUT", "waiting")
        with trio.CancelScope() as scope:
            scope.cancel()
            await ana.call("serial", {"name": "x"})
        assert scope.cancelled_caught
        gate = b.gate()
        other = b.start(nursery, "write", {"tag": "w", "then": "wait", "gate": gate})
        await b.arrived(gate)
        assert await ana.code("serial", {"name": "x"}) == "OVERLOADED"
        await b.open(gate)
        await other.wait()
        turns.go_on.set()
        assert await ana.code("serial", {"name": "x"}, request_id="r") == "ok"
    assert turns.ran == ["held", "x"]


async def test_no_question_in_vain():
    """What another check refuses leaves no question, and neither does a call that a granted permission covers."""
    async with bench() as b:
        ana = b.of(principal="ana")
        assert await ana.code("destructive", {"tug": "t"}) == "INVALID_ARGUMENTS"
        assert await ana.code("destructive", {"tag": "t"}, request_id="x" * 300) == "INVALID_ID"
        assert await b.of(permissions={"confirm:destructive"}).code("destructive", {"tag": "t"}) == "ok"
        assert await b.of(confirm=lambda spec, arguments: False).code("destructive", {"tag": "u"}) == (
            "CONFIRMATION_REQUIRED"
        )
        assert await b.engine.confirmations() == []
        b.engine.stop()
        assert await ana.code("destructive", {"tag": "t"}) == "SHUTTING_DOWN"
        assert await b.engine.confirmations() == []


async def test_many_callers_do_not_meet():
    """Of fifty callers with equal requests, those that were approved run once each, and each sees its own id."""
    async with bench() as b:
        callers = {name: b.of(principal=name) for name in (f"p{number}" for number in range(50))}
        ids: dict[str, str] = {}

        async def ask(name: str) -> None:
            ids[name] = told(await callers[name].call("destructive", {"tag": "t"}))["confirmation_id"]

        async with trio.open_nursery() as nursery:
            for name in callers:
                nursery.start_soon(ask, name)
        assert len(set(ids.values())) == 50
        agreed = {name for number, name in enumerate(callers) if number % 3 == 0}
        for name in agreed:
            await b.engine.answer_confirmation(ids[name], approve=True)
        ran: set[str] = set()

        async def run(name: str) -> None:
            result = await callers[name].call("destructive", {"tag": "t"})
            if code(result) == "ok":
                ran.add(name)
            else:
                assert told(result)["confirmation_id"] not in {ids[other] for other in callers if other != name}

        async with trio.open_nursery() as nursery:
            for name in [*callers, *callers]:
                nursery.start_soon(run, name)
        assert ran == agreed
        assert await b.effects("t") == len(agreed)


async def test_a_flood_of_questions_costs_others_nothing():
    """A caller's oldest questions give way to its newer ones; those of others stay, and no answered one goes."""
    async with bench() as b:
        ben = await approved(b, principal="ben")
        ana = await approved(b, principal="ana")
        for number in range(MAX_PENDING_CONFIRMATIONS + 20):
            assert await ana.code("destructive", {"tag": f"t{number}"}) == "CONFIRMATION_REQUIRED"
        open_ones = await b.engine.confirmations()
        pending = [json.loads(entry.arguments)["tag"] for entry in open_ones if entry.state == "pending"]
        assert pending == [f"t{number}" for number in reversed(range(20, MAX_PENDING_CONFIRMATIONS + 20))]
        assert await ben.code("destructive", {"tag": "t"}) == "ok"
        assert await ana.code("destructive", {"tag": "t"}) == "ok"


async def test_what_no_person_could_read():
    """Arguments that are too long to be shown get no id: only a permission can allow the call."""
    async with bench() as b:
        result = await b.of(principal="ana").call("destructive", {"tag": "t" * 70_000})
        assert code(result) == "CONFIRMATION_REQUIRED"
        assert told(result) == {"permission": "confirm:destructive"}
        assert "64 KiB" in result.error.message
        assert await b.engine.confirmations() == []


async def test_arguments_stay_out_of_records_and_logs(caplog):
    """The confirmation has them, and nothing else has."""
    caplog.set_level(logging.DEBUG)
    async with bench() as b:
        ana = b.of(principal="ana")
        question = told(await ana.call("destructive", {"tag": "s3cret"}))["confirmation_id"]
        await b.engine.answer_confirmation(question, approve=True)
        assert await ana.code("destructive", {"tag": "s3cret"}) == "ok"
        assert question in caplog.text  # the answer is logged
        assert "s3cret" not in caplog.text + repr(b.sink.records)


class Broken(MemoryStore):
    """A store whose confirmations fail."""

    async def find_confirmations(self, owner, fingerprint, *, now):
        raise OSError("/secret/path")


class Known(MemoryStore):
    """One that names the reason."""

    async def add_confirmation(self, entry):
        failure = StoreError("the disk at /secret/path is full")
        failure.reason = "disk_full"
        raise failure


@pytest.mark.parametrize(("store", "details"), [(Broken, {}), (Known, {"reason": "disk_full"})])
async def test_a_store_that_fails(store, details):
    """No confirmation, no call: the error states that the tool did not run, and not where the store is."""
    async with bench(store=store()) as b:
        result = await b.of(principal="ana").call("destructive", {"tag": "t"})
        assert code(result) == "STORE_ERROR"
        assert told(result) == {"ran": False, **details}
        assert "secret" not in repr(result.error)
        assert await b.effects("t") == 0


async def test_over_http(server, tmp_path):
    """The page needs its own credentials and nothing else; a caller can neither list nor answer, in whatever form it asks."""

    @tool(effect="destructive", register=False)
    async def burn(name: str) -> str:
        return f"{name} is gone"

    async with serving(burn, authenticator=TOKENS) as running:
        refused = await running.call("burn", ANA, arguments={"name": "x"})
        assert refused.status == 403
        path = f"/agent/confirmations/{refused.json['error']['details']['confirmation_id']}"

        async def post(headers: dict[str, str], body: bytes, path: str = path) -> Any:
            async with running.client() as client:
                return await client.request("POST", path, {"content-type": JSON, **headers}, body)

        yes = b'{"approve": true}'
        for headers, status in (({}, 401), (ANA, 403), (BEN, 403), ({**ANA, "x-principal": "eve"}, 403)):
            assert (await running.get("/agent/confirmations", headers)).status == status
            assert (await post(headers, yes)).status == status
        for body in (
            b"",
            b"{}",
            b'{"approve": 1}',
            b'{"approve": "true"}',
            b'{"approve": true, "approve": false}',
            b"[]",
        ):
            assert (await post(HOST, body)).code == "INVALID_REQUEST"
        assert (await post(HOST, b'{"approve": true, "principal": "ana"}')).code == "INVALID_REQUEST"
        assert (await post({**HOST, "content-type": "text/plain"}, yes)).code == "INVALID_REQUEST"
        assert (await post({**HOST, "origin": "https://evil.example"}, yes)).code == "FORBIDDEN"
        assert (await post(HOST, yes, "/agent/confirmations/conf_0")).status == 404
        assert (await post(HOST, yes, "/agent/confirmations/")).code == "ROUTE_NOT_FOUND"
        assert (await running.get(path, HOST)).code == "METHOD_NOT_ALLOWED"
        listed = await running.get("/agent/confirmations", HOST)
        assert listed.headers["cache-control"] == "no-store"
        (entry,) = listed.json["confirmations"]
        assert (entry["state"], entry["arguments"], entry["principal"]) == ("pending", {"name": "x"}, "ana")
        answered = await post(HOST, yes)
        assert (answered.status, answered.json["state"], answered.json["answered_by"]) == (200, "approved", "eve")
        assert (await running.call("burn", BEN, arguments={"name": "x"})).status == 403
        assert (await running.call("burn", ANA, arguments={"name": "x"})).status == 200
        assert (await running.call("burn", ANA, arguments={"name": "x"})).status == 403
        assert (await post(HOST, yes)).code == "CONFIRMATION_NOT_FOUND"


async def test_a_crash_between_the_approval_and_the_run(tmp_path: Path):
    """The approval outlives the process that asked, and counts once in the next one."""
    with trio.fail_after(60):
        async with page(tmp_path) as host:
            async with WAYS["stdio"](tmp_path) as caller:
                refused = await caller.execute(burn())
                await host.answer_confirmation(told(refused)["confirmation_id"], approve=True)
                with pytest.raises(OutcomeUnknownError):
                    await caller.execute(ExecutionRequest(tool="crash"))
            async with WAYS["stdio"](tmp_path) as caller:
                assert (await caller.execute(burn())).data == "letters is gone"
                assert code(await caller.execute(burn())) == "CONFIRMATION_REQUIRED"
    assert burnt(tmp_path) == ["letters"]


async def test_a_crash_within_the_run(tmp_path: Path):
    """The approval is used up: the retry is uncertain, and another request needs a person again."""
    with trio.fail_after(60):
        async with page(tmp_path) as host:
            async with WAYS["stdio"](tmp_path) as caller:
                refused = await caller.execute(burn("power", request_id="r"))
                await host.answer_confirmation(told(refused)["confirmation_id"], approve=True)
                with pytest.raises(OutcomeUnknownError):
                    await caller.execute(burn("power", request_id="r"))
            async with WAYS["stdio"](tmp_path) as caller:
                assert code(await caller.execute(burn("power", request_id="r"))) == "EXECUTION_UNCERTAIN"
                assert code(await caller.execute(burn("power", request_id="s"))) == "CONFIRMATION_REQUIRED"
            assert (await only_confirmation(host)).state == "pending"
    assert burnt(tmp_path) == ["power"]


class Turns:
    """A tool whose calls take turns, the first of which lasts until it may go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = trio.Event(), trio.Event()
        self.ran: list[str] = []

        @tool(effect="destructive", register=False)
        async def serial(name: str) -> None:
            self.ran.append(name)
            self.begun.set()
            await self.go_on.wait()

        self.tool = serial

    async def hold(self, b: Bench) -> None:
        """Take the turn."""
        await b.of(permissions={"confirm:serial"}).call("serial", {"name": "held"})

    async def approved(self, b: Bench, name: str) -> Bench:
        """A caller whose request has been approved."""
        ana = b.of(principal="ana")
        question = told(await ana.call("serial", {"name": name}))["confirmation_id"]
        await b.engine.answer_confirmation(question, approve=True)
        return ana


class Clock:
    """The clock of an engine's confirmations, moved by hand."""

    def __init__(self, b: Bench) -> None:
        self.now = 1_700_000_000.0
        b.engine._pipeline.confirmations._clock = lambda: self.now


async def refusal(b: Bench, confirmation_id: str, *, approve: bool) -> str:
    """The code that an answer is refused with."""
    with pytest.raises(AgentError) as refused:
        await b.engine.answer_confirmation(confirmation_id, approve=approve)
    return refused.value.code
