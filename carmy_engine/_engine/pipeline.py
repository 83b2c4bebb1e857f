"""The pipeline: the order of steps of every execution.

lookup → policies → ids → arguments → argument policies → confirmation → already cancelled → capacity → reservation → turn → tool →
output → record → sinks → last event. The first step that fails decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

import msgspec
import trio

from .._execution.cancel_causes import cancelled_error
from .._execution.completion import Finisher
from .._execution.execution import Caller, Execution, Inflight, Listener, new_execution_id
from .._execution.invoke import Ending, Invoker
from .._execution.policy import confirmation_required
from .._execution.tool_table import Registered, Registry
from .._execution.trio_internals import LazyDeadlineScope
from .._idempotency.decisions import may_join
from .._idempotency.reservations import Reservations, identity_of
from .._model.codec import check_timeout_ms
from .._model.compiled_tool import TakesLong
from .._model.context import AgentContext
from .._model.error_boundary import as_agent_error, ask_foreign, is_cancel, is_ctrl_c, json_safe, raise_foreign
from .._model.errors import AgentError
from .._model.fingerprint import fingerprint
from .._model.request import ExecutionRequest
from .._model.reservation import Identity
from .._model.result import ExecutionResult, Outcome
from .._schema.json_form import encode_arguments
from .confirmations import Confirmations
from .long_checks import LongChecks

_NONE: dict[str, Any] = {}

_YIELD_SECONDS = 0.01
"""Interval between two trips through the scheduler; far below the resolution of a deadline."""


class SpanFactory(Protocol):
    """Makes spans around other things than executions, such as the runs of graphs."""

    def open_span(
        self, name: str, attributes: Mapping[str, str | int | bool], context: AgentContext | None
    ) -> AbstractContextManager[Callable[[str, str | None], object]]:
        """A span that is the current one inside the block.

        Args:
            name: Its name.
            attributes: Those that are known at its start.
            context: The caller whose span is its parent, if it has one; None for the current one.

        Returns:
            A context manager whose value receives the status and the error code.
        """
        ...


class Pipeline:
    """Takes one request through all steps.

    Attributes:
        registry: Steps *lookup* and *policies*.
        inflight: Step *capacity*.
        reservations: Steps *reservation* and *record*.
        invoker: Steps *tool* and *output*.
        finisher: Steps *sinks* and *last event*.
        long_checks: Step *arguments*, where they are long.
        confirmations: Step *confirmation*, where the person is not asked during the call.
        background: Nursery for tasks that outlive their call: they wait for abandoned threads.
        now: The engine's clock, trio's time; callable in any thread.
        spans: Makes spans; None if there are none.
    """

    spans: SpanFactory | None = None

    def __init__(
        self,
        *,
        registry: Registry,
        inflight: Inflight,
        reservations: Reservations,
        invoker: Invoker,
        finisher: Finisher,
        long_checks: LongChecks,
        confirmations: Confirmations,
        background: trio.Nursery,
        now: Callable[[], float],
    ) -> None:
        self.registry = registry
        self.inflight = inflight
        self.reservations = reservations
        self.invoker = invoker
        self.finisher = finisher
        self.long_checks = long_checks
        self.confirmations = confirmations
        self.background = background
        self.now = now
        self._yield_at = 0.0

    async def run(
        self,
        request: ExecutionRequest,
        caller: Caller,
        listener: Listener | None = None,
        returned: Callable[[Any], None] | None = None,
        unreadable: AgentError | None = None,
    ) -> ExecutionResult:
        """Run one request to its end.

        Args:
            request: The request.
            caller: The caller and its options.
            listener: Receiver of events; None for none.
            returned: Called with the return value of the tool, if its output is valid.
            unreadable: Error of arguments that could not be read.

        Raises:
            trio.Cancelled: The caller's own scope was cancelled. The reservation is settled and the record written.
        """
        execution = Execution(
            new_execution_id(), request.tool, request.request_id, caller, listener, self.now, returned
        )
        if listener is not None:
            listener.execution_started(execution)
        found: Registered | None = None
        policies = self.registry.policies
        is_unconfirmed = False
        digest: bytes | None = None
        try:
            found = self.registry.find(request.tool, caller.only)
            if found is None or (policies.exist and not await policies.check(caller.context, found.spec)):
                found = None  # a hidden tool is reported as unknown
                raise await self.registry.unknown(request.tool, caller.only, caller.context)
            identity = None if request.request_id is None else identity_of(request.request_id, caller.context)
            if request.on_running != "refuse":
                execution.may_join = may_join(request.on_running)
            execution.timeout = found.timeout if request.timeout_ms is None else _shorter(found.timeout, request)
            if unreadable is not None:
                raise unreadable
            raw, arguments, takes_long = b"", _NONE, None
            try:
                raw = json_arguments(request)
                arguments = found.tool.parse(raw)
            except TakesLong as taken:
                takes_long = taken.with_traceback(None)  # its frames, this one among them, would keep the arguments
            except BaseException as error:  # noqa: BLE001 - the boundary round validators, default factories and properties
                raise_foreign(error)
            if takes_long is not None:  # outside the handler, or errors would keep the arguments as their context
                arguments = await self.long_checks.check_arguments(takes_long)
            if policies.see_arguments:
                view = partial(policies.view, found.spec, raw)
                given = view() if takes_long is None else await self.long_checks.read_arguments(view)
                await policies.check_call(caller.context, found.spec, given)
            is_unconfirmed = found.confirmation is not None and found.confirmation not in caller.context.permissions
            if takes_long is not None and (identity is not None or is_unconfirmed):
                read = partial(fingerprint, request.tool, raw, request.metadata)
                digest = await self.long_checks.read_arguments(read)
            if is_unconfirmed:
                digest = digest or fingerprint(request.tool, raw, request.metadata)
                await self._confirm(execution, found, raw, digest)
                is_unconfirmed = False
            # Fast tools never wait, so a loop over `execute` would block the event loop. A trip through the scheduler on
            # every call would double the cost of the call.
            now = self.now()
            if now < self._yield_at:
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                self._yield_at = now + _YIELD_SECONDS
                await trio.lowlevel.checkpoint()
                now = self.now()
            self.inflight.admit(execution)
            execution.begin(now)
        except AgentError as refusal:
            confirmable = is_unconfirmed and refusal.code == "CONFIRMATION_REQUIRED"
            ending = Ending(error=json_safe(refusal), exception=refusal, confirmable=confirmable)
            return self.finisher.finish(execution, None if found is None else found.spec, ending)
        except Exception as error:  # noqa: BLE001 - a fault of a policy, a validator or the engine
            told, origin = as_agent_error(error, f"the check before {request.tool}", expose=self.invoker.expose)
            return self.finisher.finish(
                execution, None if found is None else found.spec, Ending(error=told, exception=origin)
            )
        except (trio.Cancelled, BaseExceptionGroup, KeyboardInterrupt):
            # The caller's cancel, in a group if `confirm` uses a nursery; or a Ctrl-C.
            self._finish_cut_off(execution, found)
            raise
        try:
            return await self._run_admitted(found, arguments, raw, request, identity, digest, execution)
        finally:
            self.inflight.dismiss(execution)

    async def _confirm(self, execution: Execution, found: Registered, raw: bytes, digest: bytes) -> None:
        """Ask the person of this caller, or find a person's approval. A closing engine does neither: it refuses the call later.

        Raises:
            AgentError: ``CONFIRMATION_REQUIRED``, ``CONFIRMATION_DENIED``; what the host's function refuses with.
            Fault: It failed.
        """
        confirm = execution.caller.confirm
        if self.inflight.closing:
            return
        if confirm is None:
            execution.approval = await self.confirmations.look_up(execution, found.spec, raw, digest)
        elif await ask_foreign(math.inf, confirm, found.spec, raw) is True:
            execution.granted = found.confirmation
        else:
            raise confirmation_required(found.spec.name)

    async def _run_admitted(
        self,
        found: Registered,
        arguments: dict[str, Any],
        raw: bytes,
        request: ExecutionRequest,
        identity: Identity | None,
        digest: bytes | None,
        execution: Execution,
    ) -> ExecutionResult:
        """Run the steps from the reservation to the end."""
        ending: Ending | Outcome | None = None
        reserved = False
        try:
            with LazyDeadlineScope(execution.deadline) as execution.scope:
                try:
                    if identity is not None:
                        ending = await self.reservations.reserve(identity, execution, found.tool, request, raw, digest)
                        reserved = ending is None
                    if execution.approval is not None:
                        execution.start_deadline()  # using it up may wait for the store
                    if ending is None and (found.turn is not None or execution.may_have_waited):
                        ending = await self._run_in_turn(found, arguments, execution)
                    elif ending is None:  # the common case: nothing to wait for, nothing to release
                        ending = await self.invoker.invoke(found.tool, arguments, execution)
                except AgentError as refusal:
                    confirmable = execution.approval is not None and refusal.code == "CONFIRMATION_REQUIRED"
                    ending = Ending(error=refusal, exception=refusal, confirmable=confirmable and not execution.started)
                finally:
                    execution.ended = True
        except GeneratorExit:
            raise  # this coroutine is being closed; nothing may be awaited or returned
        except BaseException as error:
            if isinstance(error, RuntimeError) and isinstance(error.__context__, GeneratorExit):
                raise  # the same, through a scope that another task has entered
            ending = self._escaped(error, found, execution)
            if execution.gone and (is_cancel(error) or is_ctrl_c(error)):
                ending = await self._settle(found, identity if reserved else None, execution, ending)
                self.finisher.finish(execution, found.spec, ending)
                raise
        if isinstance(ending, Outcome):
            return self.finisher.replay(execution, found.spec, ending)
        if ending is None:
            ending = self._cut_off(execution, found)
        if reserved or execution.thread is not None or execution.listener is not None:  # else nothing is left to settle
            ending = await self._settle(found, identity if reserved else None, execution, ending)
        result = self.finisher.finish(execution, found.spec, ending)
        if execution.gone:
            await trio.lowlevel.checkpoint_if_cancelled()  # the tool held the caller's cancel back
        return result

    def _escaped(self, error: BaseException, found: Registered, execution: Execution) -> Ending:
        """The ending of an execution that an exception ended."""
        if is_ctrl_c(error):
            execution.gone = True
            return self._cut_off(execution, found)
        if is_cancel(error):
            # Either the caller's own cancel, which is raised again, or the one after the grace (see `run_with_grace`).
            return self._cut_off(execution, found)
        # The tool left a scope open; trio found and closed it at the exit of the outer scope.
        told, origin = as_agent_error(error, f"the tool {found.spec.name}", expose=self.invoker.expose)
        return Ending(error=told, exception=origin, crashed=True, cause=execution.cancellation.cause)

    async def _run_in_turn(self, found: Registered, arguments: dict[str, Any], execution: Execution) -> Ending | None:
        """Run the tool within its turn, if it has one. An abandoned thread keeps the turn until it ends."""
        turn = found.turn
        if turn is not None and not turn.take_at_once():
            execution.mark_waiting()
            execution.start_deadline()
            await turn.take()
        try:
            if execution.may_have_waited:
                # A cancel that arrived at the end of the wait: stop here, before the tool runs up to its first await.
                await trio.lowlevel.checkpoint_if_cancelled()
            if execution.approval is not None:
                await execution.approval.use()
            return await self.invoker.invoke(found.tool, arguments, execution)
        finally:
            if turn is not None and not _left_thread(execution):
                turn.free()

    async def _settle(
        self, found: Registered, identity: Identity | None, execution: Execution, ending: Ending
    ) -> Ending:
        """Send the end of the tool and settle its request_id. An abandoned thread delays settling until it ends."""
        if execution.started and execution.listener is not None:
            execution.listener.tool_completed(execution, ok=ending.error is None)
        if _left_thread(execution):
            self.background.start_soon(self._outlive, found, identity, execution, ending)
        elif identity is not None:
            ending = await self.reservations.settle(identity, execution, found.spec, ending)
        return ending

    async def _outlive(
        self, found: Registered, identity: Identity | None, execution: Execution, ending: Ending
    ) -> None:
        """Keep the turn and the reservation of an abandoned thread until the thread or the engine ends."""
        assert execution.thread is not None
        try:
            await execution.thread.ended.wait()
        finally:
            if found.turn is not None:
                found.turn.free()
            if identity is not None:
                await self.reservations.settle(identity, execution, found.spec, ending)

    def _cut_off(self, execution: Execution, found: Registered) -> Ending:
        """The ending of an execution that was cancelled, by its scope or one further out."""
        execution.notice_cancel()
        cause = execution.cancellation.cause
        assert cause is not None
        error = cancelled_error(
            cause, found.spec, started=execution.started, timeout=execution.timeout, joined=execution.joined
        )
        return Ending(error=error, cause=cause)

    def _finish_cut_off(self, execution: Execution, found: Registered | None) -> None:
        """Finish an execution whose caller was cancelled before the reservation."""
        if found is not None:
            self.finisher.finish(execution, found.spec, self._cut_off(execution, found))


def _left_thread(execution: Execution) -> bool:
    return execution.thread is not None and execution.thread.abandoned


def json_arguments(request: ExecutionRequest) -> bytes:
    """Arguments as JSON; missing arguments and null become an empty object."""
    arguments = request.arguments
    if arguments is None:
        return b"{}"
    if isinstance(arguments, msgspec.Raw):
        raw = bytes(arguments)
        return b"{}" if raw == b"null" else raw
    return encode_arguments(arguments)


def _shorter(limit: float, request: ExecutionRequest) -> float:
    """The request's own limit in seconds, if it is shorter.

    Raises:
        AgentError: ``INVALID_REQUEST``.
    """
    wanted = check_timeout_ms(request.timeout_ms)
    return wanted / 1000 if wanted < limit * 1000 else limit
