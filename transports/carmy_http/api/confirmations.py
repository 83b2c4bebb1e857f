"""``/agent/confirmations`` lists the calls that wait for a person; ``/{id}`` takes the answer. For callers with the permission."""

from __future__ import annotations

import msgspec

from carmy_engine import BoundEngine, HttpSettings
from carmy_engine.codec import confirmation_body

from ..message import JSON_TYPE, NO_STORE, Request, Response
from .reading import JsonBody

CONFIRMATIONS_PATH = "/agent/confirmations"
CONFIRMATIONS_PREFIX = CONFIRMATIONS_PATH + "/"


class _Listing(msgspec.Struct, frozen=True):
    confirmations: list[msgspec.Raw]


class ConfirmationAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's answer."""

    approve: bool


_ANSWER = JsonBody(ConfirmationAnswer)


async def list_open(_request: Request, engine: BoundEngine) -> Response:
    """Answer ``GET`` on the list: the open confirmations of all callers, newest first.

    Raises:
        AgentError: ``FORBIDDEN`` without the permission; ``STORE_ERROR``.
    """
    found = [msgspec.Raw(confirmation_body(entry)) for entry in await engine.confirmations()]
    return Response(200, (JSON_TYPE, NO_STORE), msgspec.json.encode(_Listing(found)))


async def answer(limits: HttpSettings, request: Request, engine: BoundEngine) -> Response:
    """Answer ``POST`` on one confirmation with the confirmation as it is then.

    Raises:
        AgentError: What the engine refuses with; ``INVALID_REQUEST``.
        Refusal: The body is too large or too slow.
    """
    wanted = await _ANSWER.read(request, limits, engine)
    confirmation_id = request.head.path.removeprefix(CONFIRMATIONS_PREFIX)
    entry = await engine.answer_confirmation(confirmation_id, approve=wanted.approve)
    return Response(200, (JSON_TYPE, NO_STORE), confirmation_body(entry))
