"""Whatever code of an author or a host lets out, wherever it runs, on every transport: it costs its own call one answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
import trio

from tests.boundary.app import LISTED
from tests.boundary.escapes import ESCAPES, SECRET
from tests.boundary.ways import WAYS, Opened, Said, Way

CELL_SECONDS = 5.0
"""For one cell, which takes a few milliseconds."""

MOST_LOOKS = 300
"""At the books, while something that a call has used is still on its way back."""

PANIC = frozenset({"TOOL_PANIC"})
OUTPUT = frozenset({"INVALID_OUTPUT", "TOOL_PANIC"})
STORE = frozenset({"STORE_ERROR"})
UNCERTAIN = frozenset({"EXECUTION_UNCERTAIN"})
REFUSED = frozenset({"INTERNAL_ERROR", "TOOL_PANIC"})


class Site(NamedTuple):
    """A place where code runs that is not ours.

    Attributes:
        codes: What the call that meets an escape there may be answered with.
        tool: The tool to call; empty for what no call reaches.
        request_id: Of the call.
        streamed: Ask for events as well.
        absorbed: Escapes that Python or trio takes for the regular end of what surrounds the site: the tool goes on.
        ways: Those on which it exists; all if empty.
        why: Why it does not exist on the others.
        then: What the next call is answered with, which raises nothing.
        lines: Of the log, with a traceback; None if trio may add some, or their rate is limited.
    """

    codes: frozenset[str] = PANIC
    tool: str = ""
    request_id: str | None = None
    streamed: bool = False
    absorbed: frozenset[str] = frozenset()
    ways: frozenset[str] = frozenset()
    why: str = ""
    then: str = "ok"
    lines: int | None = 1


_CREDENTIALS = frozenset({"native", "hypercorn", "websocket", "mcp_http"})
_OF_NURSERIES = frozenset({"Cancelled", "group_of_Cancelled"})
_HOST = frozenset({"in_process"})
_HTTP = frozenset({"native", "hypercorn"})

SITES: Mapping[str, Site] = {
    "tool, async": Site(tool="in_coroutine"),
    "tool, async, after a wait": Site(tool="after_a_wait"),
    "tool, async, with events": Site(tool="with_context", streamed=True),
    "tool, async, with a request_id": Site(tool="after_a_wait", request_id="id:{how}"),
    "tool, sync": Site(tool="in_thread"),
    "tool, sync, with events and a request_id": Site(tool="in_thread", request_id="thread:{how}", streamed=True),
    "tool made by hand": Site(tool="made_by_hand"),
    "tool of another executor": Site(tool="far"),
    "nursery": Site(tool="in_nursery", absorbed=_OF_NURSERIES),
    "nested nurseries": Site(tool="in_nested_nurseries", absorbed=_OF_NURSERIES),
    "scope": Site(tool="in_scope"),
    "async generator": Site(tool="in_generator"),
    "async generator, closed": Site(tool="in_closed_generator", absorbed=frozenset({"GeneratorExit"})),
    "async generator with a nursery, abandoned": Site(tool="in_abandoned_generator", lines=None),
    "block of an async generator": Site(tool="in_block", absorbed=_OF_NURSERIES),
    "clean-up of a block": Site(tool="in_clean_up"),
    "thread of an async tool": Site(tool="in_thread_of_its_own"),
    "loop, for a thread": Site(tool="from_thread"),
    "tool, asyncio": Site(tool="in_asyncio"),
    "tool, asyncio, after a wait": Site(tool="in_asyncio_later", streamed=True),
    "tool, asyncio, a cancelled future": Site(tool="in_asyncio_future", request_id="future:{how}"),
    "tool, asyncio, handler": Site(tool="in_clean_up_of_asyncio"),
    "validator of an argument": Site(tool="after_validator"),
    "validator of a field": Site(tool="field_validators"),
    "validator of a model": Site(tool="model_validators"),
    "default factory": Site(tool="default_factory"),
    "serialiser": Site(OUTPUT, tool="serializer"),
    "computed field": Site(OUTPUT, tool="computed"),
    "state, entered": Site(tool="after_entering"),
    "state, left": Site(tool="before_leaving"),
    "state, entered in the tool's thread": Site(tool="after_entering_in_thread"),
    "state, left in the tool's thread": Site(tool="before_leaving_in_thread"),
    "policy, check": Site(tool="check.{how}"),
    "policy, async check": Site(tool="check_later.{how}"),
    "policy, is_listed": Site(tool="is_listed.{how}"),
    "policy, async is_listed": Site(tool="is_listed_later.{how}"),
    "policy, check_arguments": Site(tool="guarded"),
    "policy, async check_arguments": Site(tool="guarded_later"),
    "sink": Site(frozenset({"ok"}), tool="sink.{how}"),
    "store, reserve": Site(STORE, tool="stored", request_id="reserve:{how}", lines=None),
    "store, complete": Site(STORE, tool="stored", request_id="complete:{how}", lines=None),
    "reconcile": Site(UNCERTAIN, then="EXECUTION_UNCERTAIN", tool="reconciled", request_id="interrupted:{how}"),
    "confirm": Site(tool="confirmed", ways=_HOST, why="elsewhere the question is ours, or none"),
    "confirm, async": Site(tool="confirmed_later", ways=_HOST, why="as above"),
    "authenticator, sync": Site(REFUSED, ways=_CREDENTIALS, why="whoever starts a process needs no credentials"),
    "authenticator, async": Site(REFUSED, ways=_CREDENTIALS, why="as above"),
    "ready check, sync": Site(lines=None, ways=_HTTP, why="only HTTP has an address for readiness"),
    "ready check, async": Site(lines=None, ways=_HTTP, why="as above"),
}


# A generator that is abandoned is collected before its end, which trio warns about.
@pytest.mark.filterwarnings("ignore:Async generator")
@pytest.mark.parametrize("name", WAYS)
def test_an_escape_costs_its_call_one_answer(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """For every site and escape: one answer with the right code and no word of the exception, and one traceback in the log.
    The next call is answered, and no task, descriptor, reservation or turn is left behind.
    """
    matrix = Matrix(name, caplog)
    while matrix.cells:
        before = len(matrix.cells)
        try:
            trio.run(matrix.judge_all)
        except BaseException as escaped:
            if len(matrix.cells) == before:
                raise  # it did not even open
            matrix.failures[matrix.cell] = f"ended the process: {type(escaped).__name__}"
    assert matrix.failures == {}


OTHER_PROCESSES = frozenset({"stdio", "mcp_stdio"})


class Matrix:
    """The cells of one way.

    Attributes:
        cells: Site and escape of those that are to be judged.
        cell: The last one that was taken.
        failures: What is wrong, by cell.
    """

    def __init__(self, name: str, caplog: pytest.LogCaptureFixture) -> None:
        self._name = name
        self._caplog = caplog
        self._sites = {key: site for key, site in SITES.items() if not site.ways or name in site.ways}
        self.cells = deque((site, how) for site in self._sites for how in ESCAPES)
        self.cell = ("", "")
        self.failures: dict[tuple[str, str], str] = {}

    async def judge_all(self) -> None:
        """Open the way, and judge cells until one fails: what it has broken must not be taken for a fault of the next one."""
        async with WAYS[self._name]() as opened:
            await self._warm_up(opened)
            books = await _books(opened.way)
            while self.cells:
                self.cell = self.cells.popleft()
                failure: str | None = "no answer"
                self._caplog.clear()
                with trio.move_on_after(CELL_SECONDS):
                    failure = await _judge(opened, *self.cell) or await _leak(opened.way, books) or self._unlogged()
                if failure is not None:
                    self.failures[self.cell] = failure
                    return

    def _unlogged(self) -> str | None:
        """What is wrong with the log of a cell; None if nothing. That of another process is not looked at."""
        site = SITES[self.cell[0]]
        wanted = 0 if self.cell[1] in site.absorbed else site.lines
        messages = [record.getMessage() for record in self._caplog.records]
        # Each list logs its failing policies, and the watchdog may log a slow machine.
        found = [text for text in messages if "whether to list" not in text and not text.startswith("the event loop ")]
        return None if wanted is None or self._name in OTHER_PROCESSES or len(found) == wanted else f"log: {found}"

    async def _warm_up(self, opened: Opened) -> None:
        """Use everything once, so that what is kept for the next time is there."""
        for site in self._sites.values():
            if site.tool:
                await _call(opened.way, site, "no")
        assert await opened.way.listed() == LISTED
        if opened.knock is not None:
            assert await opened.knock("token.no") == await opened.knock("token_later.no") == "ok"
        if opened.ready is not None:
            assert not {"no", "later.no"} & set(await opened.ready())


async def _judge(opened: Opened, name: str, how: str) -> str | None:
    """What is wrong with a cell; None if nothing."""
    site = SITES[name]
    if site.tool:
        codes = site.codes if how not in site.absorbed else {"ok"}
        said = await _call(opened.way, site, how)
        if said.code not in codes or SECRET in said.raw:
            return f"{said.code}: {said.raw}"
        said = await _call(opened.way, site, "no")
        return None if said.code == site.then else f"then {said.code}: {said.raw}"
    if name.startswith("authenticator"):
        assert opened.knock is not None
        site_of_token = "token_later" if "async" in name else "token"
        refusal, welcome = await opened.knock(f"{site_of_token}.{how}"), await opened.knock(f"{site_of_token}.no")
        return None if refusal in site.codes and welcome == "ok" else f"{refusal}, then {welcome}"
    assert opened.ready is not None
    check = f"later.{how}" if "async" in name else how
    return None if check in await opened.ready() else "the check has passed"


async def _leak(way: Way, books: Any) -> str | None:
    """What is held that was not held before; None if nothing."""
    now: Any = None
    for _ in range(MOST_LOOKS):
        if (now := await _books(way)) == books:
            return None
    return f"leaks: before {books}, now {now}"


async def _call(way: Way, site: Site, how: str) -> Said:
    tool = site.tool.format(how=how)
    request_id = None if site.request_id is None else site.request_id.format(how=how)
    return await way.call(tool, {} if "." in tool else {"how": how}, streamed=site.streamed, request_id=request_id)


async def _books(way: Way) -> Any:
    return (await way.call("books", {}, streamed=False, request_id=None)).data
