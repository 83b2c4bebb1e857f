"""Several authenticators as one."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from .._model.context import AgentContext
from .._model.host_objects import check_authenticator
from .._model.protocols import Authenticator, Challenge, Credentials


def first_of(*authenticators: Authenticator) -> FirstOf:
    """Authenticate by the first of several authenticators that accepts the credentials.

    ::

        app.authenticate(first_of(BearerTokens(tokens), Jwt(issuer=..., audience=..., jwks=...)))

    They are called in order. One that raises ends the search: its error is the answer.

    Raises:
        DeclarationError: There is none, or one cannot be called with credentials.
    """
    return FirstOf(authenticators)


class FirstOf:
    """See `first_of`.

    Attributes:
        challenge: What a caller without valid credentials can do: the advice of each.
    """

    __slots__ = ("_authenticators", "challenge")

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        for authenticator in authenticators or (None,):
            check_authenticator(authenticator, "first_of")
        self._authenticators = tuple(authenticators)
        challenges = [challenge_of(authenticator) for authenticator in authenticators]
        self.challenge = Challenge(
            action=" Or: ".join(dict.fromkeys(challenge.action for challenge in challenges)),
            issuers=tuple(dict.fromkeys(issuer for challenge in challenges for issuer in challenge.issuers)),
        )

    def adapted(self, adapt: Callable[[Authenticator], Authenticator]) -> FirstOf:
        """The same, with each authenticator replaced by what `adapt` returns for it."""
        return FirstOf(
            [each.adapted(adapt) if isinstance(each, FirstOf) else adapt(each) for each in self._authenticators]
        )

    def __call__(self, credentials: Credentials, /) -> AgentContext | Coroutine[Any, Any, AgentContext | None] | None:
        """Return the context of the first that has one; a coroutine from the first on that has to wait."""
        for number, authenticator in enumerate(self._authenticators):
            answer = authenticator(credentials)
            if inspect.isawaitable(answer):
                return self._wait(answer, self._authenticators[number + 1 :], credentials)
            if answer is not None:
                return answer
        return None

    async def _wait(
        self,
        answer: Awaitable[AgentContext | None],
        others: Sequence[Authenticator],
        credentials: Credentials,
    ) -> AgentContext | None:
        context = await answer
        for authenticator in others:
            if context is not None:
                break
            answered = authenticator(credentials)
            context = await answered if inspect.isawaitable(answered) else answered
        return context


def challenge_of(authenticator: object) -> Challenge:
    """What an authenticator asks of callers without valid credentials; a bearer token, if it declares nothing."""
    found = getattr(authenticator, "challenge", None)
    return found if isinstance(found, Challenge) else Challenge()
