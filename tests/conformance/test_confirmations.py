"""A person's confirmation outside the call, on every way to reach an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from carmy_engine import ExecutionResult
from tests.support.vault import WAYS, burn, burnt, only_confirmation, page


def refused(result: ExecutionResult, code: str = "CONFIRMATION_REQUIRED") -> dict[str, Any]:
    """The details of a refusal."""
    assert result.error is not None
    assert result.error.code == code
    return dict(result.error.details or {})


@pytest.mark.parametrize("way", WAYS)
async def test_approved_the_same_request_runs_once(way: str, tmp_path: Path) -> None:
    """The refusal has an id; approved in another process, the same request runs, and the next time it is asked about anew."""
    with trio.fail_after(60):
        async with WAYS[way](tmp_path) as caller, page(tmp_path) as host:
            details = refused(await caller.execute(burn()))
            assert 590 < details["expires_in"] <= 600
            assert details["permission"] == "confirm:burn"
            asked = await only_confirmation(host)
            assert asked.confirmation_id == details["confirmation_id"]
            assert (asked.tool, asked.arguments, asked.principal) == ("burn", b'{"name":"letters"}', "ana")
            assert refused(await caller.execute(burn()))["confirmation_id"] == asked.confirmation_id
            answered = await host.answer_confirmation(asked.confirmation_id, approve=True)
            assert (answered.state, answered.answered_by) == ("approved", "host")
            assert refused(await caller.execute(burn("photos")))["confirmation_id"] != asked.confirmation_id
            assert burnt(tmp_path) == []
            done = await caller.execute(burn())
            assert done.data == "letters is gone"
            assert refused(await caller.execute(burn()))["confirmation_id"] != asked.confirmation_id
            assert burnt(tmp_path) == ["letters"]


@pytest.mark.parametrize("way", WAYS)
async def test_denied(way: str, tmp_path: Path) -> None:
    """The error states the denial, which is no advice to try again; nothing runs."""
    with trio.fail_after(60):
        async with WAYS[way](tmp_path) as caller, page(tmp_path) as host:
            confirmation_id = refused(await caller.execute(burn()))["confirmation_id"]
            await host.answer_confirmation(confirmation_id, approve=False)
            result = await caller.execute(burn())
            assert refused(result, "CONFIRMATION_DENIED")["confirmation_id"] == confirmation_id
            assert result.error is not None
            assert not result.error.recoverable
            assert result.next_actions == ()
            assert burnt(tmp_path) == []


@pytest.mark.parametrize("way", WAYS)
async def test_a_retry_gets_the_answer(way: str, tmp_path: Path) -> None:
    """Once the request has run, a retry with its request_id replays the answer; under another one it needs a person again."""
    with trio.fail_after(60):
        async with WAYS[way](tmp_path) as caller, page(tmp_path) as host:
            confirmation_id = refused(await caller.execute(burn(request_id="r1")))["confirmation_id"]
            await host.answer_confirmation(confirmation_id, approve=True)
            first = await caller.execute(burn(request_id="r1"))
            again = await caller.execute(burn(request_id="r1"))
            assert (first.replayed, again.replayed, again.data) == (False, True, "letters is gone")
            refused(await caller.execute(burn(request_id="r2")))
            assert burnt(tmp_path) == ["letters"]
