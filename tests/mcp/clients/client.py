"""One client, as a program: ``client.py LIBRARY (stdio | http) (call | timeout | close | kill) FOLDER (URL | COMMAND...)``.

It runs in an environment that has the library, and nothing of this project. It prints the sum that it has got, and exits with 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import inspect
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]

PATIENCE_SECONDS = 1.0
"""The limit of a call that times out."""

START_SECONDS = 30.0


def _environment() -> dict[str, str]:
    return dict(os.environ)


@asynccontextmanager
async def sdk(wire: str, target: list[str]) -> AsyncIterator[Call]:
    """The session of the official SDK, versions 1 and 2."""
    mcp = import_module("mcp")
    async with AsyncExitStack() as stack:
        if wire == "stdio":
            stdio = import_module("mcp.client.stdio")
            server = mcp.StdioServerParameters(command=target[0], args=target[1:], env=_environment())
            streams = await stack.enter_async_context(stdio.stdio_client(server))
        else:
            http = import_module("mcp.client.streamable_http")
            connect = getattr(http, "streamable_http_client", None) or http.streamablehttp_client
            streams = await stack.enter_async_context(connect(target[0]))
        session = await stack.enter_async_context(mcp.ClientSession(*streams[:2]))
        await session.initialize()
        await session.list_tools()
        parameter = inspect.signature(session.call_tool).parameters.get("read_timeout_seconds")
        options: dict[str, Any] = {}
        if parameter is not None and sys.argv[3] == "timeout":
            is_number = "float" in str(parameter.annotation)
            options["read_timeout_seconds"] = PATIENCE_SECONDS if is_number else dt.timedelta(seconds=PATIENCE_SECONDS)

        async def call(tool: str, arguments: dict[str, Any]) -> Any:
            return await session.call_tool(tool, arguments, **(options if tool == "hold" else {}))

        yield call


@asynccontextmanager
async def sdk_client(wire: str, target: list[str]) -> AsyncIterator[Call]:
    """The client of the official SDK, version 2."""
    mcp = import_module("mcp")
    server: Any = target[0]
    if wire == "stdio":
        server = mcp.stdio_client(mcp.StdioServerParameters(command=target[0], args=target[1:], env=_environment()))
    async with mcp.Client(server) as client:
        await client.list_tools()
        yield client.call_tool


@asynccontextmanager
async def fastmcp(wire: str, target: list[str]) -> AsyncIterator[Call]:
    """The client of FastMCP."""
    async with _fastmcp_client(wire, target) as client:
        await client.list_tools()
        yield client.call_tool


@asynccontextmanager
async def fastmcp_proxy(wire: str, target: list[str]) -> AsyncIterator[Call]:
    """A proxy of FastMCP in front of the server, and its client in memory."""
    backend = _fastmcp_client(wire, target)
    server = import_module("fastmcp.server")
    make = getattr(server, "create_proxy", None) or import_module("fastmcp").FastMCP.as_proxy
    async with import_module("fastmcp").Client(make(backend)) as client:
        await client.list_tools()
        yield client.call_tool


def _fastmcp_client(wire: str, target: list[str]) -> Any:
    transport: Any = target[0]
    if wire == "stdio":
        transports = import_module("fastmcp.client.transports")
        transport = transports.StdioTransport(target[0], target[1:], env=_environment(), keep_alive=False)
    return import_module("fastmcp").Client(transport)


@asynccontextmanager
async def openai_agents(wire: str, target: list[str]) -> AsyncIterator[Call]:
    """The servers of the OpenAI Agents SDK."""
    agents = import_module("agents.mcp")
    if wire == "stdio":
        params: dict[str, Any] = {"command": target[0], "args": target[1:], "env": _environment()}
        server = agents.MCPServerStdio(params, client_session_timeout_seconds=START_SECONDS)
    else:
        server = agents.MCPServerStreamableHttp({"url": target[0]}, client_session_timeout_seconds=START_SECONDS)
    async with server:
        await server.list_tools()
        yield server.call_tool


@asynccontextmanager
async def pydantic_ai(wire: str, target: list[str]) -> AsyncIterator[Call]:
    """The toolset of Pydantic AI."""
    toolset = import_module("pydantic_ai.mcp").MCPToolset(_fastmcp_client(wire, target))
    async with toolset:
        await toolset.list_tools()
        yield toolset.direct_call_tool


@asynccontextmanager
async def langchain(wire: str, target: list[str]) -> AsyncIterator[Call]:
    """The tools of the MCP adapters of LangChain: each call has a connection of its own."""
    connection: dict[str, Any] = {"transport": "streamable_http", "url": target[0]}
    if wire == "stdio":
        connection = {"transport": "stdio", "command": target[0], "args": target[1:], "env": _environment()}
    client = import_module("langchain_mcp_adapters.client").MultiServerMCPClient({"ours": connection})
    tools = {tool.name: tool for tool in await client.get_tools()}

    async def call(tool: str, arguments: dict[str, Any]) -> Any:
        return await tools[tool].ainvoke(arguments)

    yield call


@asynccontextmanager
async def llama_index(wire: str, target: list[str]) -> AsyncIterator[Call]:
    """The client of LlamaIndex: each call has a connection of its own."""
    client = import_module("llama_index.tools.mcp").BasicMCPClient(target[0], args=target[1:], env=_environment())
    await client.list_tools()
    yield client.call_tool


LIBRARIES = {
    library.__name__: library
    for library in (sdk, sdk_client, fastmcp, fastmcp_proxy, openai_agents, pydantic_ai, langchain, llama_index)
}


async def has_started(folder: Path) -> None:
    """Wait until the tool runs."""
    async with asyncio.timeout(START_SECONDS):
        while not (folder / "started").exists():  # noqa: ASYNC110 - nothing else shows it
            await asyncio.sleep(0.01)


async def main(library: str, wire: str, mode: str, folder: Path, target: list[str]) -> None:
    """Call, or leave with a call running."""
    held: asyncio.Task[Any] | None = None
    async with LIBRARIES[library](wire, target) as call:
        if mode == "timeout":
            held = asyncio.ensure_future(_has_returned(call, folder))
            await has_started(folder)
            with contextlib.suppress(asyncio.TimeoutError):
                if await asyncio.wait_for(held, 2 * PATIENCE_SECONDS):
                    raise SystemExit("a call that runs for ever has returned")
        elif mode in ("close", "kill"):
            held = asyncio.ensure_future(_has_returned(call, folder))
            await has_started(folder)
            if mode == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if library in ("langchain", "llama_index"):
                held.cancel()  # nothing else ends the connection of a call
        if mode in ("call", "timeout"):
            print(await call("add", {"a": 1, "b": 2}))
    if held is not None:
        held.cancel()
        await asyncio.wait([held])


async def _has_returned(call: Call, folder: Path) -> bool:
    """False after a call that has ended with an exception, of whichever kind its library has."""
    try:
        await call("hold", {"folder": str(folder)})
    except Exception:
        return False
    return True


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5:]))
