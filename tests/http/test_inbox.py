"""The queue between a connection and the application: bounded, and never in the way of an end."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from carmy_http._inbox import MAX_UNREAD_BYTES, Inbox
from carmy_http._message import Response


async def no_answer(answer: Response, head: bool) -> None:
    raise AssertionError("nothing is answered here")


def piece(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def fill(inbox: Inbox, nursery: trio.Nursery) -> trio.Event:
    """Put more than fits; return an event that is set once putting has gone on."""
    went_on = trio.Event()

    async def put() -> None:
        await inbox.put(piece(b"x" * (MAX_UNREAD_BYTES + 1)))
        went_on.set()

    nursery.start_soon(put)
    await trio.testing.wait_all_tasks_blocked()
    assert not went_on.is_set()
    return went_on


async def test_the_client_waits_for_the_application() -> None:
    """Beyond the limit, putting waits until the application takes something."""
    inbox = Inbox(no_answer, trio.CancelScope())
    async with trio.open_nursery() as nursery:
        went_on = await fill(inbox, nursery)
        assert len((await inbox.receive())["body"]) == MAX_UNREAD_BYTES + 1
        await went_on.wait()


async def test_ends_free_whoever_waits() -> None:
    """The client's end and the application's end both let the reader go on."""
    for end in (Inbox.hang_up, Inbox.abandon):
        inbox = Inbox(no_answer, trio.CancelScope())
        async with trio.open_nursery() as nursery:
            went_on = await fill(inbox, nursery)
            end(inbox)
            await went_on.wait()
            await inbox.put(piece(b"more"))


async def test_after_the_client_has_gone() -> None:
    """What came before the end is still received; then every receive says that the client has gone."""
    inbox = Inbox(no_answer, trio.CancelScope())
    await inbox.put(piece(b"a"))
    await inbox.put({"type": "http.disconnect"})
    assert (await inbox.receive())["body"] == b"a"
    for _ in range(3):
        assert (await inbox.receive())["type"] == "http.disconnect"


async def test_whole_body() -> None:
    """A body is taken whole when all of it is here, and left alone otherwise."""
    inbox = Inbox(no_answer, trio.CancelScope())
    assert inbox.whole_body() is None
    await inbox.put(piece(b"ab"))
    assert inbox.whole_body() is None
    await inbox.put(piece(b"", more=False))
    assert inbox.whole_body() == b"ab"
    assert inbox.whole_body() is None


async def test_watching() -> None:
    """While somebody watches, the client's end cancels the connection, at once if it has gone already; not afterwards."""
    for ends_first in (False, True):
        connection = trio.CancelScope()
        inbox = Inbox(no_answer, connection)
        assert inbox.watch() is connection
        inbox.unwatch()
        if ends_first:
            inbox.hang_up()
        assert not connection.cancel_called
        inbox.watch()
        assert connection.cancel_called is ends_first
        inbox.hang_up()
        assert connection.cancel_called
