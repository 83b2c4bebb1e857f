"""The methods that clients call, and the versions that have them, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .versions import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION, VERSIONS


class Method(NamedTuple):
    """One method.

    Attributes:
        since: The first version that has it.
        until: The last one.
        named_by: The parameter that the header ``Mcp-Name`` repeats since 2026-07-28; None if there is none.
        may_omit_name: Clients of some makers do not send that header.
    """

    since: str = VERSIONS[0]
    until: str = VERSIONS[-1]
    named_by: str | None = None
    may_omit_name: bool = False

    def is_in(self, version: str) -> bool:
        """True if a version has this method."""
        return self.since <= version <= self.until


_TASK = Method(since=LATEST_MODERN_VERSION, named_by="taskId", may_omit_name=True)

METHODS: Mapping[str, Method] = {
    "initialize": Method(until=LATEST_HANDSHAKE_VERSION),
    "ping": Method(until=LATEST_HANDSHAKE_VERSION),
    "server/discover": Method(since=LATEST_MODERN_VERSION),
    "tools/list": Method(),
    "tools/call": Method(named_by="name"),
    "resources/list": Method(),
    "resources/templates/list": Method(),
    "resources/read": Method(named_by="uri"),
    "resources/subscribe": Method(until=LATEST_HANDSHAKE_VERSION),
    "resources/unsubscribe": Method(until=LATEST_HANDSHAKE_VERSION),
    "prompts/list": Method(),
    "prompts/get": Method(named_by="name"),
    "completion/complete": Method(),
    "logging/setLevel": Method(until=LATEST_HANDSHAKE_VERSION),
    "subscriptions/listen": Method(since=LATEST_MODERN_VERSION),
    # The extension io.modelcontextprotocol/tasks (SEP-2663).
    "tasks/get": _TASK,
    "tasks/update": _TASK,
    "tasks/cancel": _TASK,
}
"""By name. Requests of servers and notifications are in no table: their sender checks what its peer has declared."""

NO_PARAMETER = Method()


def has(method: str, version: str) -> bool:
    """True if a version has a method."""
    known = METHODS.get(method)
    return known is not None and known.is_in(version)
