"""The answers of persons to confirmations, through an executor."""

from __future__ import annotations

from .._model.confirmation import ConfirmationEntry
from .._model.context import AgentContext
from .._model.errors import AgentError
from .confirmations import ANSWER_PERMISSION, Confirmations
from .pipeline import Pipeline


class Answering:
    """The part of an executor with which a host's own page lists and answers confirmations."""

    def _opened(self) -> Pipeline:
        raise NotImplementedError

    @property
    def _owner(self) -> AgentContext | None:
        raise NotImplementedError

    async def confirmations(self) -> list[ConfirmationEntry]:
        """List the confirmations of all callers that are open: pending, approved and not used, denied. Newest first, at most 200.

        Raises:
            AgentError: ``FORBIDDEN``, without the permission ``confirmations:answer``; ``STORE_ERROR``.
        """
        return await self._allowed().newest()

    async def answer_confirmation(self, confirmation_id: str, *, approve: bool) -> ConfirmationEntry:
        """Approve or deny a call that was refused with ``CONFIRMATION_REQUIRED``.

        Approved, the same request of the same caller runs once, within the setting ``confirmation_timeout_secs``. The same answer
        again changes nothing. A denial takes an approval back that was not used; it is final until it expires.

        Args:
            confirmation_id: From the error's details, or from `confirmations`.
            approve: The answer.

        Returns:
            The confirmation with its answer.

        Raises:
            AgentError: ``FORBIDDEN``, without the permission ``confirmations:answer``; ``CONFIRMATION_NOT_FOUND``;
                ``CONFIRMATION_DENIED``, for an approval after a denial; ``STORE_ERROR``.
        """
        confirmations, context = self._allowed(), self._owner
        by = "host" if context is None else context.principal or "anonymous"
        return await confirmations.answer(confirmation_id, approve=approve, by=by)

    def _allowed(self) -> Confirmations:
        confirmations, context = self._opened().confirmations, self._owner
        if context is not None and not context.allows(ANSWER_PERMISSION):
            raise AgentError.standard(
                "FORBIDDEN", f"to read and answer confirmations takes the permission {ANSWER_PERMISSION}"
            )
        return confirmations
