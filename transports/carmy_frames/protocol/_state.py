"""State machines of connections and calls, as tables. A table draws its diagram for the documents."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Generic, TypeVar

from ._errors import LocalProtocolError

S = TypeVar("S", bound=enum.StrEnum)
G = TypeVar("G", bound=enum.StrEnum)


class Word(enum.StrEnum):
    """The base of states and signals."""

    # Each message causes several look-ups, and the hash of an enum is computed in Python.
    __hash__ = str.__hash__


class Signal(Word):
    """An input of a state machine, from the view of the side that owns it."""

    READY = "ready"
    """The server's first frame."""
    REQUEST = "request"
    """A request, or a call that is accepted."""
    EVENT = "event"
    """An event of a streaming call."""
    ANSWER = "answer"
    """An answer or a refusal."""
    END = "end"
    """The peer's end of input."""
    LAST_ANSWER = "last answer"
    """The last answer after the client's end of input."""


class ServerState(Word):
    """The states of a server's connection."""

    STARTING = "starting"
    OPEN = "open"
    ENDING = "ending"
    """The client's input has ended; accepted calls are still answered."""
    CLOSED = "closed"


class ClientState(Word):
    """The states of a client's connection."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSED = "closed"


class CallState(Word):
    """The states of one call, on both sides."""

    PLAIN = "plain"
    """The answer comes next."""
    STREAMING = "streaming"
    """Events come before its answer."""
    ANSWERED = "answered"
    """The id is free again."""


class Table(Generic[S, G]):
    """A transition table. A signal without an entry is not allowed.

    Args:
        moves: The next state, by state and signal.
    """

    def __init__(self, moves: Mapping[tuple[S, G], S]) -> None:
        self._moves = dict(moves)

    def after(self, state: S, signal: G) -> S:
        """Return the next state.

        Raises:
            LocalProtocolError: The signal is not allowed in this state.
        """
        try:
            return self._moves[state, signal]
        except KeyError:
            raise LocalProtocolError(f"'{signal}' is not allowed when {state}") from None

    def allows(self, state: S, signal: G) -> bool:
        """True if the signal is allowed in this state."""
        return (state, signal) in self._moves

    def mermaid(self) -> str:
        """Return the diagram as Mermaid source."""
        sources = dict.fromkeys(state for state, _ in self._moves)
        reached = {target for (state, _), target in self._moves.items() if target != state}
        lines = ["stateDiagram-v2"]
        lines += [f"    [*] --> {state}" for state in sources if state not in reached]
        lines += [f"    {state} --> {target}: {signal}" for (state, signal), target in self._moves.items()]
        lines += [f"    {state} --> [*]" for state in dict.fromkeys(self._moves.values()) if state not in sources]
        return "\n".join(lines) + "\n"


SERVER: Table[ServerState, Signal] = Table(
    {
        (ServerState.STARTING, Signal.READY): ServerState.OPEN,
        (ServerState.OPEN, Signal.REQUEST): ServerState.OPEN,
        (ServerState.OPEN, Signal.ANSWER): ServerState.OPEN,
        (ServerState.OPEN, Signal.EVENT): ServerState.OPEN,
        (ServerState.OPEN, Signal.END): ServerState.ENDING,
        (ServerState.ENDING, Signal.ANSWER): ServerState.ENDING,
        (ServerState.ENDING, Signal.EVENT): ServerState.ENDING,
        (ServerState.ENDING, Signal.LAST_ANSWER): ServerState.CLOSED,
    }
)

CLIENT: Table[ClientState, Signal] = Table(
    {
        (ClientState.CONNECTING, Signal.READY): ClientState.OPEN,
        (ClientState.CONNECTING, Signal.END): ClientState.CLOSED,
        (ClientState.OPEN, Signal.REQUEST): ClientState.OPEN,
        (ClientState.OPEN, Signal.EVENT): ClientState.OPEN,
        (ClientState.OPEN, Signal.ANSWER): ClientState.OPEN,
        (ClientState.OPEN, Signal.END): ClientState.CLOSED,
    }
)

CALL: Table[CallState, Signal] = Table(
    {
        (CallState.PLAIN, Signal.ANSWER): CallState.ANSWERED,
        (CallState.STREAMING, Signal.EVENT): CallState.STREAMING,
        (CallState.STREAMING, Signal.ANSWER): CallState.ANSWERED,
    }
)
