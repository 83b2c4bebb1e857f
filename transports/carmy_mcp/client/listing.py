"""The tools of a server as they were listed last, and its lists, all their pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from carmy_engine import AgentError, ClosedError, ConfigurationError

from ..protocol.client import NegotiationError
from ..protocol.errors import JsonRpcError
from .catalog import FarTool, far_tools
from .limits import McpClientLimits
from .link import LinkError
from .results import error_answered
from .session import ClientSession


class ToolList:
    """The tools of a server, as they were listed last.

    Args:
        what: The server, for messages.
        overrides: See `check_overrides`.
        limits: Of the client.
        trusted: See `open_mcp`.
    """

    def __init__(
        self, what: str, overrides: Mapping[str, Mapping[str, Any]], limits: McpClientLimits, *, trusted: bool
    ) -> None:
        self.by_name: dict[str, FarTool] = {}
        self._what = what
        self._overrides = overrides
        self._limits = limits
        self._trusted = trusted

    async def prepare(self, session: ClientSession) -> None:
        """Agree on a version with a server, and list its tools.

        Raises:
            ClosedError: It cannot be reached, or does not speak the protocol.
            AgentError: It refused.
            ConfigurationError: It lacks a tool with overrides.
        """
        try:
            await session.connect()
            await self.list(session)
        except NegotiationError as error:
            raise ClosedError(f"{self._what} does not speak the protocol: {error}") from error
        except (JsonRpcError, LinkError) as error:
            raise unusable(self._what, error) from error
        if missing := self._overrides.keys() - self.by_name.keys():
            raise ConfigurationError(f"{self._what} has no tool named {', '.join(sorted(missing))}")

    async def list(self, session: ClientSession) -> None:
        """Ask for all tools.

        Raises:
            JsonRpcError: The server refused.
            LinkError: There is no answer.
            ClosedError: The list cannot be read, or has no end.
        """
        session.has_news = False
        try:
            listed = await pages(session, "tools/list", "tools", self._limits, self._what)
        except BaseException:
            session.has_news = True
            raise
        self.by_name = far_tools(listed, self._overrides, trusted=self._trusted, has_headers=session.has_headers)


class _Page(msgspec.Struct, rename="camel"):
    next_cursor: str | None = None


async def pages(
    session: ClientSession, method: str, member: str, limits: McpClientLimits, what: str
) -> list[msgspec.Raw]:
    """The entries of a list, of all its pages.

    Args:
        session: The session.
        method: The method that lists.
        member: The member of its result with the entries.
        limits: Of the client.
        what: The server, for messages.

    Raises:
        JsonRpcError: The server refused.
        LinkError: There is no answer.
        ClosedError: The list is not valid, or has no end.
    """
    found: list[msgspec.Raw] = []
    cursor: str | None = None
    for _ in range(limits.max_pages):
        result = await session.request(method, {} if cursor is None else {"cursor": cursor})
        try:
            cursor = msgspec.json.decode(result, type=_Page).next_cursor
            page = msgspec.json.decode(result, type=dict[str, msgspec.Raw])
            found += msgspec.json.decode(page.get(member, b"null"), type=list[msgspec.Raw])
        except msgspec.DecodeError as error:
            raise ClosedError(f"{what} does not speak the protocol: the answer to {method}: {error}") from error
        if len(found) > limits.max_listed:
            raise ClosedError(f"{what} lists more than {limits.max_listed} {member}")
        if cursor is None:
            return found
    raise ClosedError(f"{what} lists its {member} on more than {limits.max_pages} pages")


def unusable(what: str, error: JsonRpcError | LinkError) -> Exception:
    """The exception for a server that refused, or did not answer, what no tool depends on."""
    if isinstance(error, LinkError):
        return ClosedError(str(error))
    info = error_answered(error, "", known=True)
    return ClosedError(f"{what} refused: {error.message}") if info.code == "TOOL_ERROR" else AgentError.of(info)
