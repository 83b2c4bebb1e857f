"""Callers on the same machine, which the kernel identifies by the socket that they use."""

from __future__ import annotations

import pwd
from collections.abc import Mapping

from .._model.context import AgentContext
from .._model.errors import ConfigurationError
from .._model.protocols import Challenge, Credentials


class PeerCredentials:
    """Authenticates processes of this machine by their user: ``PeerCredentials({"deploy": AgentContext(principal="deploy")})``.

    It needs a socket with a file (``address = "unix:PATH"``), over which the kernel reports the user of the process that connected.
    Callers over TCP have none and are refused. Linux only.

    Args:
        users: The caller's context for each user: its name, or its number.

    Raises:
        ConfigurationError: There is no user of a name.
    """

    __slots__ = ("_contexts",)

    challenge = Challenge(action="Connect to the server's socket file as one of the users that it accepts.")

    def __init__(self, users: Mapping[str | int, AgentContext]) -> None:
        self._contexts: dict[int, AgentContext] = {}
        for user, context in users.items():
            try:
                number = user if isinstance(user, int) else pwd.getpwnam(user).pw_uid
            except KeyError:
                raise ConfigurationError(f"PeerCredentials: this machine has no user {user!r}") from None
            self._contexts[number] = context

    def __call__(self, credentials: Credentials, /) -> AgentContext | None:
        """Return the context of the caller's user; None if it is not listed, or the caller did not use a socket with a file."""
        return None if credentials.process is None else self._contexts.get(credentials.process.uid)

    def __repr__(self) -> str:
        return f"<PeerCredentials: {len(self._contexts)} users>"
