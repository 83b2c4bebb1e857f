"""Calls that take long, as tasks that their client polls: the extension ``io.modelcontextprotocol/tasks`` of 2026-07-28.

A call of a client that supports tasks runs beside its request. If it has not ended in time, the request is answered with a
task, and the call goes on.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import trio

from carmy_engine import Cause, ExecutionResult, ExecutionStatus, McpSettings
from carmy_engine.transport import raise_own

from ..protocol.errors import INVALID_PARAMS, MISSING_CLIENT_CAPABILITY, JsonRpcError
from ..protocol.params import TASKS, Client, TaskParams, parse
from .exchange import Exchange, owner_of
from .features import Handler, Result

POLL_SECONDS = 1.0
"""The polling interval that clients are given."""

_NEEDED: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}


class Task:
    """One call that runs beside its request.

    Attributes:
        id: Unguessable: among anonymous callers it is the only proof of ownership.
        owner: Whose it is.
        exchange: Stops it.
        over: Set when it has ended.
        output_bytes: The size of its output.
    """

    def __init__(
        self,
        exchange: Exchange,
        answer: Callable[[ExecutionResult], Awaitable[Result]],
        retention_seconds: float,
    ) -> None:
        self._retention_seconds = retention_seconds
        self.id = secrets.token_urlsafe(24)
        self.owner = owner_of(exchange.executor.context)
        self.exchange = exchange
        self.over = trio.Event()
        self.output_bytes = 0
        self._answer = answer
        self._result: ExecutionResult | None = None
        self._failure: BaseException | None = None
        self._created = self._updated = datetime.now(UTC)
        self._began = trio.current_time()
        self._ended: float | None = None

    async def work(self, call: Callable[[], Awaitable[ExecutionResult]]) -> None:
        """Run it, to whatever end."""
        try:
            self._result = await call()
            self.output_bytes = len(self._result.data_json or b"")
        except BaseException as error:  # noqa: BLE001 - `outcome` raises it to the waiting request; here it would end all others
            raise_own(error)
            self._failure = error
        finally:
            self._ended = trio.current_time()
            self._updated = datetime.now(UTC)
            self.over.set()

    async def outcome(self) -> Result:
        """What the call is answered with, when it is over."""
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return await self._answer(self._result)

    @property
    def kept_until(self) -> float:
        """When it may be forgotten, in trio's time."""
        return (trio.current_time() if self._ended is None else self._ended) + self._retention_seconds

    def state(self) -> dict[str, Any]:
        """How it is, without its outcome."""
        cancelled = self._result is not None and self._result.status is ExecutionStatus.CANCELLED
        status = "cancelled" if cancelled else "completed" if self.over.is_set() else "working"
        state: dict[str, Any] = {
            "taskId": self.id,
            "status": status,
            "createdAt": _written(self._created),
            "lastUpdatedAt": _written(self._updated),
            "ttlMs": round((self.kept_until - self._began) * 1000),
            "pollIntervalMs": round(POLL_SECONDS * 1000),
        }
        if self.exchange.message is not None:
            state["statusMessage"] = self.exchange.message
        return state


class Tasks:
    """The tasks of one server.

    Args:
        nursery: Where calls of clients that know tasks run; cancelling it cancels them.
        limits: The time after which such a call becomes a task, above 0, and the number, time and bytes of tasks.
    """

    def __init__(self, nursery: trio.Nursery, limits: McpSettings) -> None:
        self._nursery = nursery
        self._limits = limits
        self._running: dict[str, Task] = {}
        self._kept: OrderedDict[str, Task] = OrderedDict()
        self._kept_bytes = 0

    def handlers(self) -> Mapping[str, Handler]:
        """See `Feature`."""
        return {"tasks/get": self._get, "tasks/update": self._update, "tasks/cancel": self._cancel_one}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """See `Feature`."""
        return {"extensions": {TASKS: {}}} if modern else {}

    def are_known_to(self, client: Client) -> bool:
        """True if a client has declared support of tasks."""
        return client.is_modern and TASKS in (client.capabilities.extensions or ())

    async def run(
        self,
        exchange: Exchange,
        call: Callable[[], Awaitable[ExecutionResult]],
        answer: Callable[[ExecutionResult], Awaitable[Result]],
    ) -> Result:
        """Run a call, and give its answer, or the task that it has become.

        If cancelled, so is the call, unless it is a task by then.

        Args:
            exchange: The request.
            call: Runs it, under the scope of the exchange.
            answer: Makes an answer of its outcome.
        """
        task = Task(exchange, answer, self._limits.task_retention_secs)
        self._nursery.start_soon(self._work, task, call)
        try:
            with trio.move_on_after(self._limits.promote_after_secs):
                await task.over.wait()
            # After its end of input a client cannot poll a task.
            if not task.over.is_set() and not exchange.peer.input_closed.is_set() and self._has_room():
                exchange.outlives = True
                self._running[task.id] = task
                return {**task.state(), "resultType": "task"}
            await task.over.wait()
        except trio.Cancelled:
            exchange.block.scope.cancel()
            raise
        return await task.outcome()

    async def _work(self, task: Task, call: Callable[[], Awaitable[ExecutionResult]]) -> None:
        await task.work(call)
        if self._running.pop(task.id, None) is not None:
            self._kept[task.id] = task
            self._kept_bytes += task.output_bytes
            self._forget()

    def _has_room(self) -> bool:
        self._forget()
        return len(self._running) + len(self._kept) < self._limits.max_tasks

    def _forget(self) -> None:
        """Drop what is kept no longer: first those that ended first."""
        now = trio.current_time()
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if oldest.kept_until > now and self._kept_bytes <= self._limits.max_task_bytes:
                break
            del self._kept[oldest.id]
            self._kept_bytes -= oldest.output_bytes

    def cancel(self) -> None:
        """Cancel the tasks that run (cause ``disconnect``): their client has left, and cannot fetch their outcome."""
        for task in tuple(self._running.values()):
            task.exchange.end(Cause.DISCONNECT)

    def _find(self, exchange: Exchange) -> Task:
        if not self.are_known_to(exchange.client):
            raise JsonRpcError(MISSING_CLIENT_CAPABILITY, "the client has not declared support of tasks", _NEEDED)
        params = parse(exchange.request.params, TaskParams, exchange.request.method)
        self._forget()
        task = self._running.get(params.task_id) or self._kept.get(params.task_id)
        if task is None or task.owner != owner_of(exchange.executor.context):
            raise JsonRpcError(INVALID_PARAMS, "there is no such task, or no longer")
        return task

    async def _get(self, exchange: Exchange) -> Result:
        task = self._find(exchange)
        state = task.state()
        if state["status"] == "completed":
            await exchange.peer.wait_for_room()  # outcomes are large
            outcome = await task.outcome()
            state["result"] = msgspec.Raw(outcome) if isinstance(outcome, bytes) else outcome
        return state

    async def _update(self, exchange: Exchange) -> Result:
        self._find(exchange)  # and nothing else: questions are asked before a call becomes a task
        await trio.lowlevel.checkpoint()
        return {}

    async def _cancel_one(self, exchange: Exchange) -> Result:
        self._find(exchange).exchange.end(Cause.CALLER)
        await trio.lowlevel.checkpoint()
        return {}


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
