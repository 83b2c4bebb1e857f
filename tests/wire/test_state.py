"""The tables of states, and their diagrams."""

from __future__ import annotations

from pathlib import Path

import pytest

from carmy_frames.protocol import CALL, CLIENT, SERVER, CallState, ClientState, LocalProtocolError, ServerState, Signal

PAGE = Path(__file__).parents[2] / "docs" / "frames.md"


@pytest.mark.parametrize("table", [SERVER, CLIENT, CALL], ids=["server", "client", "call"])
def test_the_page_shows_the_table(table: object) -> None:
    """The diagrams of the page are those that the tables draw."""
    assert f"```mermaid\n{table.mermaid()}```" in PAGE.read_text()  # type: ignore[attr-defined] # three kinds of state


def test_moves() -> None:
    """A table gives the next state, and refuses what it does not have."""
    assert SERVER.after(ServerState.OPEN, Signal.END) is ServerState.ENDING
    assert CLIENT.after(ClientState.CONNECTING, Signal.READY) is ClientState.OPEN
    assert CALL.after(CallState.STREAMING, Signal.EVENT) is CallState.STREAMING
    assert not CALL.allows(CallState.PLAIN, Signal.EVENT)
    with pytest.raises(LocalProtocolError, match="'event' is not allowed when plain"):
        CALL.after(CallState.PLAIN, Signal.EVENT)
