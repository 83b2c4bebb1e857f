"""Sources of tools made by hand that are known only when an application opens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from .._model import protocols
from .._model.compiled_tool import CompiledTool
from .._model.errors import AgentError
from .._tools.declaration import compile_tool


class ToolSource(Protocol):
    """A source of tools.

    Attributes:
        place: Where its tools come from, for messages.
    """

    place: str

    def check(self) -> list[AgentError]:
        """All problems that can be found without a connection."""
        ...

    async def open(self, stack: AsyncExitStack) -> tuple[Sequence[protocols.Tool], list[AgentError]]:
        """The tools, and all problems; `stack` closes what this opens."""
        ...


async def sourced_tools(
    sources: Iterable[ToolSource], stack: AsyncExitStack, max_output_bytes: int | None
) -> tuple[list[tuple[ToolSource, CompiledTool]], list[AgentError]]:
    """Open every source and compile its tools.

    Args:
        sources: In order.
        stack: Closes what was opened.
        max_output_bytes: Of the rendered output of each tool; None for no limit beside its own.

    Returns:
        The tools, and why some are missing.
    """
    tools: list[tuple[ToolSource, CompiledTool]] = []
    problems: list[AgentError] = []
    for source in sources:
        found, own = await source.open(stack)
        problems += own
        for tool in found:
            try:
                tools.append((source, compile_tool(tool, {}, max_output_bytes)))
            except AgentError as problem:
                problems.append(problem)
    return tools, problems
