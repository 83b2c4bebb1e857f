"""Executors mounted in an application: opened with it; their catalogs become tools of the application."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import msgspec
import trio

from .._model import codec, protocols
from .._model.compiled_tool import CompiledTool
from .._model.errors import AgentError, CarmyError, ClosedError, DeclarationError
from .._model.spec import PublicSpec, ToolSpec
from .._tools.declaration import _check_name
from .._tools.resources import CompiledPrompt, CompiledResource
from .remote_reads import remote_reads
from .remote_tool import RemoteTool

CATALOG_SECONDS = 30.0
"""Limit for the catalog of an executor at start, including its connection."""

Mountable = (
    protocols.Executor
    | AbstractAsyncContextManager[protocols.Executor]
    | Callable[[], AbstractAsyncContextManager[protocols.Executor]]
)
"""An executor that is open already; what opens one, once; or a function that gives what opens one, each time."""

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,127}")


class Mount:
    """An executor and the names of its tools here.

    Args:
        source: See `Mountable`.
        prefix: What comes before the name of each tool.
        max_waiting: Calls that may wait here for a turn with one of its tools.

    Raises:
        DeclarationError: One of them is something else.
    """

    def __init__(self, source: object, prefix: object, max_waiting: object) -> None:
        if not (_is_executor(source) or isinstance(source, AbstractAsyncContextManager) or callable(source)):
            raise DeclarationError(
                f"{type(source).__name__} object cannot be mounted: it needs execute, stream and catalog, or to be an async"
                " context manager that gives such an object, such as open_stdio([...]) or another App's open()"
            )
        if not isinstance(prefix, str) or _PREFIX.fullmatch(prefix) is None:
            raise DeclarationError(
                f"{prefix!r} cannot begin a tool's name: use ASCII letters, digits, '_', '-' and '.'"
            )
        if isinstance(max_waiting, bool) or not isinstance(max_waiting, int) or max_waiting < 0:
            raise DeclarationError(f"max_waiting is a number of calls, not {max_waiting!r}")
        self._source: Any = source
        self._is_spent = False
        self.prefix = prefix
        self.max_waiting = max_waiting

    @property
    def place(self) -> str:
        """Where its tools come from, for messages."""
        return f"mounted under {self.prefix!r}" if self.prefix else "mounted without a prefix"

    async def open(self, stack: AsyncExitStack) -> protocols.Executor:
        """The executor, opened if it is not open; `stack` closes what this opens.

        Raises:
            ClosedError: What opens it was used before.
        """
        source = self._source
        if not _is_executor(source):
            if hasattr(source, "__aenter__"):
                if self._is_spent:
                    raise ClosedError(
                        "it can be opened once only; mount a function that gives it: lambda: open_stdio(...)"
                    )
                self._is_spent = True
                source = await stack.enter_async_context(source)
            else:
                source = await stack.enter_async_context(source())
        executor: protocols.Executor = source
        return executor

    def tool(self, executor: protocols.Executor, found: PublicSpec) -> CompiledTool:
        """One of its tools, as one of this engine.

        Raises:
            AgentError: ``INVALID_TOOL_NAME``.
        """
        name = self.prefix + found.name
        _check_name(name, self.place)
        properties: dict[str, Any] = {**msgspec.structs.asdict(found), "name": name}
        spec = ToolSpec(**properties, max_waiting=self.max_waiting)
        return CompiledTool(
            spec=spec,
            function=_unread,
            is_async=True,
            context_parameter=None,
            parse=_unread,
            render=bytes,
            runs=RemoteTool(executor, found.name, spec),
        )


async def mounted_tools(
    mounts: Iterable[Mount], stack: AsyncExitStack
) -> tuple[list[tuple[Mount, CompiledTool]], list[CompiledResource | CompiledPrompt], list[AgentError]]:
    """Open every executor and read its catalog, and those of its resources and prompts if it has some.

    Args:
        mounts: In order.
        stack: Closes what was opened.

    Returns:
        The tools, the resources and prompts, and why some are missing.
    """
    tools: list[tuple[Mount, CompiledTool]] = []
    reads: list[CompiledResource | CompiledPrompt] = []
    problems: list[AgentError] = []
    for mount in mounts:
        try:
            executor = await mount.open(stack)
            with trio.fail_after(CATALOG_SECONDS):
                catalog = await executor.catalog()
                reads += await remote_reads(executor, mount.prefix)
        except (AgentError, CarmyError, OSError) as problem:
            problems.append(_unavailable(mount, str(problem)))
        except trio.TooSlowError:
            problems.append(_unavailable(mount, f"it did not send its catalog within {CATALOG_SECONDS:g} s"))
        else:
            for found in catalog.tools:
                try:
                    tools.append((mount, mount.tool(executor, found)))
                except AgentError as problem:
                    problems.append(problem)
    return tools, reads, problems


def _unavailable(mount: Mount, why: str) -> AgentError:
    return AgentError.standard(
        "EXECUTOR_UNAVAILABLE", f"what is {mount.place} cannot be used: {why}", details={"prefix": mount.prefix}
    )


def _is_executor(source: object) -> bool:
    return all(callable(getattr(source, name, None)) for name in ("execute", "stream", "catalog"))


def _unread(arguments: bytes) -> dict[str, Any]:
    """Arguments are read where the tool is: two readers might not agree. That they are JSON matters here as well."""
    codec.check_json(arguments)
    codec.decode(arguments)
    return {"arguments": arguments}
