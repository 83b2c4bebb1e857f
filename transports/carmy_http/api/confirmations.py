"""``/agent/confirmations`` lists the calls that wait for a person; ``/{id}`` takes the answer. For callers with the permission."""

from __future__ import annotations

import math
import time

import msgspec

from carmy_engine import BoundEngine, Effect, HttpSettings
from carmy_engine.abc import ConfirmationEntry, ConfirmationState

from ..message import JSON_TYPE, NO_STORE, Request, Response
from .reading import JsonBody

CONFIRMATIONS_PATH = "/agent/confirmations"
CONFIRMATIONS_PREFIX = CONFIRMATIONS_PATH + "/"


class _Confirmation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    confirmation_id: str
    state: ConfirmationState
    tool: str
    effect: Effect
    arguments: msgspec.Raw
    transport: str
    asked_at: float
    expires_at: float
    expires_in: int
    principal: str | None = None
    session: str | None = None
    answered_at: float | None = None
    answered_by: str | None = None


class _Listing(msgspec.Struct, frozen=True):
    confirmations: list[_Confirmation]


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    approve: bool


_ANSWER = JsonBody(_Answer)


def _shown(entry: ConfirmationEntry) -> _Confirmation:
    return _Confirmation(
        confirmation_id=entry.confirmation_id,
        state=entry.state,
        tool=entry.tool,
        effect=entry.effect,
        arguments=msgspec.Raw(entry.arguments),
        transport=entry.transport,
        asked_at=entry.asked_at,
        expires_at=entry.expires_at,
        expires_in=max(0, math.ceil(entry.expires_at - time.time())),
        principal=entry.principal,
        session=entry.session,
        answered_at=entry.answered_at,
        answered_by=entry.answered_by,
    )


async def list_open(_request: Request, engine: BoundEngine) -> Response:
    """Answer ``GET`` on the list: the open confirmations of all callers, newest first.

    Raises:
        AgentError: ``FORBIDDEN`` without the permission; ``STORE_ERROR``.
    """
    found = [_shown(entry) for entry in await engine.confirmations()]
    return Response(200, (JSON_TYPE, NO_STORE), msgspec.json.encode(_Listing(found)))


async def answer(limits: HttpSettings, request: Request, engine: BoundEngine) -> Response:
    """Answer ``POST`` on one confirmation with the confirmation as it is then.

    Raises:
        AgentError: What the engine refuses with; ``INVALID_REQUEST``.
        Refusal: The body is too large or too slow.
    """
    wanted = await _ANSWER.read(request, limits)
    confirmation_id = request.head.path.removeprefix(CONFIRMATIONS_PREFIX)
    entry = await engine.answer_confirmation(confirmation_id, approve=wanted.approve)
    return Response(200, (JSON_TYPE, NO_STORE), msgspec.json.encode(_shown(entry)))
