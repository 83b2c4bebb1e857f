"""Confirmations outside the call: a refused call becomes a question, a person answers it, and the same request then runs once."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from .._execution.execution import Execution
from .._execution.policy import confirmation_required
from .._idempotency.reservations import STORE_SECONDS
from .._model.confirmation import ConfirmationEntry, ConfirmationState
from .._model.context import AgentContext
from .._model.error_boundary import Fault, await_within, call_foreign, log_traceback
from .._model.errors import AgentError
from .._model.protocols import ConfirmationStore, StoreError, StoreFull
from .._model.rate_limited_log import RateLimitedLogger
from .._model.spec import ToolSpec

log = logging.getLogger("carmy.engine")

T = TypeVar("T")

ANSWER_PERMISSION = "confirmations:answer"
"""Permission to list and answer the confirmations of all callers, one's own among them."""

MAX_ARGUMENT_BYTES = 64 * 1024
"""Of the arguments of one confirmation: a person has to read them, and the store keeps them."""

MAX_LISTED = 200
"""Confirmations in one listing."""


def owner_of(context: AgentContext) -> str:
    """The owner of this caller's confirmations. Anonymous callers of one transport share theirs."""
    if context.principal is not None:
        return f"principal:{context.principal}"
    return f"transport:{context.transport}" if context.session is None else f"session:{context.session}"


class Confirmations:
    """The confirmations of one engine, or of a store without one.

    Args:
        store: Keeps them.
        seconds: How long a confirmation waits for its answer, and how long the answer counts.
    """

    def __init__(self, store: ConfirmationStore, seconds: float) -> None:
        self._store = store
        self._seconds = seconds
        self._clock = time.time
        self._log = RateLimitedLogger(log)  # a failing store fails for every call

    async def look_up(self, execution: Execution, spec: ToolSpec, arguments: bytes, digest: bytes) -> Approval:
        """The approval of this request, to be used when the tool is about to run.

        Args:
            execution: The call.
            spec: The tool.
            arguments: The validated arguments as JSON.
            digest: The fingerprint of the request.

        Raises:
            AgentError: ``CONFIRMATION_REQUIRED``, with the id of the question; ``CONFIRMATION_DENIED``; ``STORE_ERROR``.
        """
        question = Approval(self, execution, spec, arguments, digest)
        owner = owner_of(execution.caller.context)
        found = await self._ask(self._store.find_confirmations, owner, digest, now=self._clock())
        for entry in found:
            if entry.is_live:
                if entry.state is ConfirmationState.APPROVED:
                    question.entry = entry
                    return question
                if entry.state is ConfirmationState.DENIED:
                    raise _denied(entry)
            elif entry.request_id is not None and entry.request_id == execution.request_id:
                # A retry: it gets the stored answer. If there is none any more, `use` refuses it.
                question.entry = entry
                return question
        raise await self.ask(question)

    async def ask(self, question: Approval) -> AgentError:
        """Add a confirmation for this request; return the refusal that names it.

        Raises:
            AgentError: ``STORE_ERROR``.
        """
        spec, arguments, context = question.spec, question.arguments, question.execution.caller.context
        if len(arguments) > MAX_ARGUMENT_BYTES:
            why = f", and its arguments are over {MAX_ARGUMENT_BYTES // 1024} KiB, too long to show to one"
            return confirmation_required(spec.name, why=why)
        now = self._clock()
        entry = ConfirmationEntry(
            confirmation_id=f"conf_{secrets.token_hex(16)}",
            owner=owner_of(context),
            fingerprint=question.digest,
            state=ConfirmationState.PENDING,
            tool=spec.name,
            effect=spec.effect,
            arguments=arguments,
            principal=context.principal,
            session=context.session,
            transport=context.transport,
            asked_at=now,
            expires_at=now + self._seconds,
        )
        try:
            existing = await self._ask(self._store.add_confirmation, entry)
        except StoreFull:
            return confirmation_required(spec.name, why=", and as many as the store can keep wait for theirs")
        if existing is not None and existing.state is ConfirmationState.DENIED:
            return _denied(existing)
        return _required(existing or entry, now)

    async def use(self, entry: ConfirmationEntry, request_id: str | None) -> bool:
        """Use an approval up. True for exactly one call.

        Raises:
            AgentError: ``STORE_ERROR``.
        """
        if entry.state is not ConfirmationState.APPROVED:
            return False
        now = self._clock()
        used = msgspec.structs.replace(
            entry, state=ConfirmationState.USED, request_id=request_id, expires_at=now + self._seconds
        )
        return await self._ask(self._store.replace_confirmation, used, ConfirmationState.APPROVED, now=now)

    async def newest(self) -> list[ConfirmationEntry]:
        """The pending, approved and denied confirmations, newest first.

        Raises:
            AgentError: ``STORE_ERROR``.
        """
        return await self._ask(self._store.confirmations, now=self._clock(), limit=MAX_LISTED)

    async def answer(self, confirmation_id: str, *, approve: bool, by: str) -> ConfirmationEntry:
        """Answer one. The same answer again changes nothing; a denial takes an approval back, and is final.

        Args:
            confirmation_id: Its id.
            approve: The answer.
            by: The answering principal.

        Returns:
            The entry with the answer.

        Raises:
            AgentError: ``CONFIRMATION_NOT_FOUND``: unknown, expired or used. ``CONFIRMATION_DENIED``: it has been denied.
                ``STORE_ERROR``.
        """
        wanted = ConfirmationState.APPROVED if approve else ConfirmationState.DENIED
        while True:
            now = self._clock()
            entry = await self._ask(self._store.get_confirmation, confirmation_id, now=now)
            if entry is None or not entry.is_live:
                raise AgentError.standard(
                    "CONFIRMATION_NOT_FOUND",
                    "there is no open confirmation of that id: it never was, has expired, or was used",
                    suggested_action="List the open confirmations. The caller gets a new id by sending its request again.",
                )
            if entry.state is wanted:
                return entry
            if entry.state is ConfirmationState.DENIED:
                raise _denied(entry)
            answered = msgspec.structs.replace(
                entry, state=wanted, answered_at=now, answered_by=by, expires_at=now + self._seconds
            )
            if await self._ask(self._store.replace_confirmation, answered, entry.state, now=now):
                log.info("the confirmation %s of a call of %s was %s by %s", confirmation_id, entry.tool, wanted, by)
                return answered
            # Another answer, or the call itself, came first.

    async def _ask(self, method: Callable[..., Awaitable[T]], *args: object, **options: object) -> T:
        """Call the store, which may be foreign code.

        Raises:
            StoreFull: It is full.
            AgentError: ``STORE_ERROR``.
        """
        try:
            return await await_within(STORE_SECONDS, call_foreign(method, *args, **options))
        except Fault as fault:
            failure = fault.origin
        if isinstance(failure, StoreFull):
            raise failure
        log_traceback(self._log, failure, "the store could not read or write a confirmation")
        reason = {"reason": failure.reason} if isinstance(failure, StoreError) else {}
        raise AgentError.standard(
            "STORE_ERROR",
            "the store could not read or write a confirmation; the tool was not run",
            retry_after=1,
            details={"ran": False, **reason},
        ) from failure


class Approval:
    """The approval of one request, not used yet.

    Attributes:
        entry: The confirmation; None until it is found.
    """

    entry: ConfirmationEntry | None = None

    def __init__(
        self, confirmations: Confirmations, execution: Execution, spec: ToolSpec, arguments: bytes, digest: bytes
    ) -> None:
        self._confirmations = confirmations
        self.execution = execution
        self.spec = spec
        self.arguments = arguments
        self.digest = digest

    async def use(self) -> None:
        """Use it up, just before the tool runs.

        Raises:
            AgentError: ``CONFIRMATION_REQUIRED``: another call has used it, or it has expired. ``STORE_ERROR``.
        """
        assert self.entry is not None
        if not await self._confirmations.use(self.entry, self.execution.request_id):
            raise await self._confirmations.ask(self)
        self.execution.granted = f"confirm:{self.spec.name}"
        self.execution.confirmed_by = self.entry.answered_by


def _required(entry: ConfirmationEntry, now: float) -> AgentError:
    seconds = max(1, math.ceil(entry.expires_at - now))
    return confirmation_required(entry.tool, confirmation_id=entry.confirmation_id, expires_in=seconds)


def _denied(entry: ConfirmationEntry) -> AgentError:
    return AgentError.standard(
        "CONFIRMATION_DENIED",
        f"a person has denied this call of {entry.tool}",
        suggested_action="Do not send it again; ask the person what to do instead.",
        details={"permission": f"confirm:{entry.tool}", "confirmation_id": entry.confirmation_id},
    )
