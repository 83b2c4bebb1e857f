"""Executions that wait for a client's answers, in versions where servers send no requests (2026-07-28, "Multi Round-Trip Requests").

An execution runs beside its request. When it asks for something, the request is answered with its questions and a state. The client sends the
request again, with the answers and the state, and waits for the result, or for the next questions.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import trio

from carmy_engine import Cause, McpSettings
from carmy_engine.transport import raise_own

from ..protocol.errors import INTERNAL_ERROR, JsonRpcError
from .exchange import NEVER, Exchange, Owner, SessionState, owner_of
from .features import Result

SETTLE_STEPS = 4
"""Trips through the scheduler after a question: an execution that asks several things at one time asks them together."""


class _Question:
    """One question.

    Attributes:
        request: As the client gets it.
        answered: Set with `answer`.
        answer: As the client sent it.
    """

    def __init__(self, method: str, params: Any) -> None:
        self.request = {"method": method, "params": params}
        self.answered = trio.Event()
        self.answer = msgspec.Raw()


class Round:
    """One execution and its questions. It is the `Peer` of its first request.

    Attributes:
        exchange: The first request.
        owner: The caller.
        identity: The method and the parameters that every request of it has to repeat.
        peer: The way back of the current request.
        over: Set when the execution has ended.
        kept_until: The time until which its state is valid, on trio's clock.
    """

    input_closed = NEVER
    can_ask = True

    def __init__(self, exchange: Exchange, identity: bytes, answer_seconds: float) -> None:
        self.exchange = exchange
        self.owner: Owner = owner_of(exchange.executor.context)
        self.identity = identity
        self.peer = exchange.peer
        self.over = trio.Event()
        self.kept_until = 0.0
        self._answer_seconds = answer_seconds
        self._questions: dict[str, _Question] = {}
        self._asked = trio.Event()
        self._number = 0
        self._result: Result | None = None
        self._failure: BaseException | None = None
        exchange.peer = self

    @property
    def session(self) -> SessionState | None:
        """See `Peer`."""
        return None

    async def work(self, run: Callable[[], Awaitable[Result]]) -> None:
        """Run the execution, to whatever end."""
        try:
            self._result = await run()
        except BaseException as error:  # noqa: BLE001 - `next` raises it to the waiting request; here it would end all others
            raise_own(error)
            self._failure = error
        finally:
            self.over.set()
            self._asked.set()

    async def next(self) -> Result | None:
        """The result of the execution; None if it has questions instead."""
        while not self.over.is_set():
            if self._questions:
                for _ in range(SETTLE_STEPS):
                    await trio.lowlevel.checkpoint()
                if not self.over.is_set():
                    return None
                continue
            self._asked = trio.Event()
            await self._asked.wait()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result

    def requests(self) -> dict[str, Any]:
        """The questions without an answer."""
        return {key: question.request for key, question in self._questions.items()}

    def receive(self, answers: Mapping[str, msgspec.Raw]) -> None:
        """Take answers. Those to no question are ignored."""
        for key, answer in answers.items():
            question = self._questions.pop(key, None)
            if question is not None:
                question.answer = answer.copy()
                question.answered.set()

    async def ask(self, method: str, params: Any) -> msgspec.Raw:
        """See `Peer`."""
        self._number += 1
        key = f"{method.partition('/')[0]}-{self._number}"
        question = self._questions[key] = _Question(method, params)
        self._asked.set()
        try:
            with trio.move_on_after(self._answer_seconds):
                await question.answered.wait()
                return question.answer
        finally:
            self._questions.pop(key, None)
        raise JsonRpcError(INTERNAL_ERROR, "the client did not answer in time")

    async def notify(self, method: str, params: Any) -> None:
        """See `Peer`."""
        await self.peer.notify(method, params)

    def notify_soon(self, method: str, params: Any) -> None:
        """See `Peer`."""
        self.peer.notify_soon(method, params)

    async def wait_for_room(self) -> None:
        """See `Peer`."""
        await self.peer.wait_for_room()


class Rounds:
    """The executions of one server that wait for answers.

    Args:
        nursery: For executions. Cancelling it cancels them.
        limits: The number of waiting executions, and the time for an answer.
    """

    def __init__(self, nursery: trio.Nursery, limits: McpSettings) -> None:
        self._nursery = nursery
        self._limits = limits
        self._waiting: OrderedDict[str, Round] = OrderedDict()

    async def run(self, exchange: Exchange, identity: bytes, run: Callable[[], Awaitable[Result]]) -> Result:
        """Run an execution up to its result or its first questions.

        Args:
            exchange: The request. Its peer becomes that of the round.
            identity: See `Round`.
            run: Runs the execution, under the scope of the exchange.
        """
        found = Round(exchange, identity, self._limits.question_timeout_secs)
        self._nursery.start_soon(found.work, run)
        return await self._next(found)

    async def resume(
        self, exchange: Exchange, state: str, identity: bytes, answers: Mapping[str, msgspec.Raw]
    ) -> Result | None:
        """Continue an execution. None if the state is not that of an execution of this caller and this request."""
        self._forget()
        found = self._waiting.pop(state, None)
        if found is None or found.owner != owner_of(exchange.executor.context) or found.identity != identity:
            return None
        found.peer = exchange.peer
        found.receive(answers)
        with exchange.block:
            return await self._next(found)
        found.exchange.take_back()
        return {}

    async def _next(self, found: Round) -> Result:
        try:
            result = await found.next()
        except trio.Cancelled:
            found.exchange.block.scope.cancel()
            raise
        if result is not None:
            return result
        self._forget()
        state = secrets.token_urlsafe(24)
        found.kept_until = trio.current_time() + self._limits.question_timeout_secs
        self._waiting[state] = found
        return {"resultType": "input_required", "inputRequests": found.requests(), "requestState": state}

    def _forget(self) -> None:
        """Drop what is kept no longer, and what is too much."""
        now = trio.current_time()
        while self._waiting:
            state, oldest = next(iter(self._waiting.items()))
            if oldest.kept_until > now and len(self._waiting) < self._limits.max_questions:
                break
            del self._waiting[state]
            if not oldest.over.is_set():
                oldest.exchange.end(Cause.DISCONNECT)
