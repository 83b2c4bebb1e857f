"""Confirmations by the person behind a client, for calls that need one.

Until 2025-11-25 the server asks while the call waits. Since 2026-07-28 servers send no requests: the call is answered with
the question, and the client calls again with the answer.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections import OrderedDict
from typing import Any, Protocol

import msgspec
import trio

from carmy_engine import McpSettings, ToolSpec
from carmy_engine.transport import fingerprint

from ..protocol.errors import JsonRpcError
from ..protocol.params import CallParams, ElicitResult
from .exchange import Exchange, Owner, owner_of

log = logging.getLogger("carmy.mcp")

MAX_SHOWN = 2000
"""Characters of the arguments in a question. The question states how many more there are."""

_SINCE = "2025-06-18"
"""The first version in which a server can ask."""

_KEY = "confirm"
"""The question's name, and that of its one field."""

_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        _KEY: {"type": "boolean", "title": "Run it", "description": "Counts for this call alone.", "default": False}
    },
    "required": [_KEY],
}


class Prompt(Protocol):
    """Asks about one call; see `carmy_engine.abc.Confirm`.

    Attributes:
        question: What to answer the call with instead of its outcome, None for nothing.
        is_unknown: The call refers to a question that was not asked about it, or no longer counts.
    """

    question: dict[str, Any] | None
    is_unknown: bool

    async def __call__(self, spec: ToolSpec, arguments: bytes, /) -> bool:
        """See `carmy_engine.abc.Confirm`."""
        ...


class Questions:
    """The questions of one server.

    Args:
        stopping: Set when no call will be started any more, so that no answer is worth waiting for.
        limits: The number of open questions, and the time for an answer.
    """

    def __init__(self, stopping: trio.Event, limits: McpSettings) -> None:
        self.limits = limits
        self.stopping = stopping
        self.waiting = 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def about(self, exchange: Exchange, params: CallParams) -> Prompt | None:
        """Return the prompt for a call; None if its client supports none."""
        client = exchange.client
        if client.version < _SINCE or not client.capabilities.can_show_forms:
            return None
        if client.is_modern:
            return InputRequiredPrompt(self, exchange, params)
        return ElicitationPrompt(self, exchange) if exchange.peer.can_ask else None

    def keep(self, owner: Owner, digest: bytes) -> str:
        """Remember what a question is about.

        Returns:
            What has to come back with the answer. It cannot be guessed, and counts once.
        """
        if len(self._kept) >= self.limits.max_questions:
            self._kept.popitem(last=False)
        state = secrets.token_urlsafe(24)
        self._kept[state] = _Kept(owner, digest, trio.current_time() + self.limits.question_timeout_secs)
        return state

    def take(self, state: str, owner: Owner, digest: bytes) -> bool:
        """True if this caller has an open question about this very call. Removes the question."""
        kept = self._kept.pop(state, None)
        return kept is not None and kept.owner == owner and kept.digest == digest and trio.current_time() < kept.expires


class _Kept(msgspec.Struct, frozen=True):
    owner: Owner
    digest: bytes
    expires: float


class ElicitationPrompt:
    """Asks by elicitation while the call waits (until 2025-11-25)."""

    question: dict[str, Any] | None = None
    is_unknown = False

    def __init__(self, questions: Questions, exchange: Exchange) -> None:
        self._questions = questions
        self._peer = exchange.peer

    async def __call__(self, spec: ToolSpec, arguments: bytes, /) -> bool:
        """Ask. An answer after the limit, the client's end of input or a shutdown counts as a no."""
        if self._questions.waiting >= self._questions.limits.max_questions:
            return False
        self._questions.waiting += 1
        agreed = False
        try:
            async with trio.open_nursery() as nursery:
                nursery.cancel_scope.deadline = trio.current_time() + self._questions.limits.question_timeout_secs
                for end in (self._questions.stopping, self._peer.input_closed):
                    nursery.start_soon(_cancel_at, end, nursery.cancel_scope)
                agreed = await self._ask(_message(spec, arguments))
                nursery.cancel_scope.cancel()
        finally:
            self._questions.waiting -= 1
        return agreed

    async def _ask(self, message: str) -> bool:
        try:
            answer = await self._peer.ask("elicitation/create", _question(message))
        except JsonRpcError as error:
            log.warning("a client did not answer a question (%s)", error.code)  # its text is not logged
            return False
        return _is_yes(answer)


class InputRequiredPrompt:
    """Reads the answer that comes with a call, or has the call answered with the question (since 2026-07-28)."""

    def __init__(self, questions: Questions, exchange: Exchange, params: CallParams) -> None:
        self.question: dict[str, Any] | None = None
        self.is_unknown = False
        self._questions = questions
        self._exchange = exchange
        self._state = params.request_state
        self._answers = params.input_responses

    async def __call__(self, spec: ToolSpec, arguments: bytes, /) -> bool:
        """True when this call has the answer of a person to the question about it. Asks once: a second no is no answer."""
        await trio.lowlevel.checkpoint()
        owner = owner_of(self._exchange.executor.context)
        digest = fingerprint(spec.name, arguments, None)
        if self._state is not None:
            self.is_unknown = not self._questions.take(self._state, owner, digest)
            return not self.is_unknown and _is_yes((self._answers or {}).get(_KEY))
        if not self._answers:
            params = _question(_message(spec, arguments))
            self.question = {
                "resultType": "input_required",
                "inputRequests": {_KEY: {"method": "elicitation/create", "params": params}},
                "requestState": self._questions.keep(owner, digest),
            }
        return False


async def _cancel_at(end: trio.Event, scope: trio.CancelScope) -> None:
    await end.wait()
    scope.cancel()


def _question(message: str) -> dict[str, Any]:
    return {"mode": "form", "message": message, "requestedSchema": _FORM}


def _is_yes(answer: msgspec.Raw | None) -> bool:
    try:
        found = None if answer is None else msgspec.json.decode(answer, type=ElicitResult)
    except msgspec.DecodeError:
        return False
    return found is not None and found.action == "accept" and (found.content or {}).get(_KEY) is True


def _message(spec: ToolSpec, arguments: bytes) -> str:
    shown = msgspec.json.format(arguments, indent=-1).decode()
    left = len(shown) - MAX_SHOWN
    if left > 0:
        shown = f"{shown[:MAX_SHOWN]}… ({left} more characters are not shown)"
    # Nothing that could make it look like something else: within JSON, only strings can have such characters.
    shown = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in shown)
    return f"May {spec.name} run (effect: {spec.effect.value}) with these arguments? {shown}"
