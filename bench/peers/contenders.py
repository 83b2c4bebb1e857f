"""Who is measured, and how each of them is started and called."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any, Literal

from bench.peers.servers.catalog import EXPECTED, QUERY

SERVERS = Path(__file__).parent / "servers"
NODE_MODULES = SERVERS / "node_modules"

JSON = {"Content-Type": "application/json"}
MCP = {**JSON, "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}

SEARCH = {"query": QUERY}
CALL = {"tool": "search", "arguments": SEARCH}
MCP_CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search", "arguments": SEARCH}}


@dataclasses.dataclass(frozen=True)
class Contender:
    """One of those who are measured.

    Attributes:
        name: In tables and plots.
        command: Starts it; ``{port}`` stands for the port.
        kind: How it is called: requests of HTTP, or lines over standard input and output.
        path: For HTTP.
        headers: For HTTP.
        body: The request. In lines, ``id`` is replaced by a number of their own.
        hello: Messages that open a session.
        fresh_ids: Give every request a ``request_id`` of its own.
        needs: Modules of Python, or packages of Node, that it is made with.
    """

    name: str
    command: tuple[str, ...]
    kind: Literal["http", "lines"]
    body: dict[str, Any]
    path: str = ""
    headers: dict[str, str] = dataclasses.field(default_factory=lambda: JSON)
    hello: tuple[dict[str, Any], ...] = ()
    fresh_ids: bool = False
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> str | None:
        """What it needs and is not there."""
        if self.command[0] == "node":
            if shutil.which("node") is None:
                return "Node"
            return next((name for name in self.needs if not (NODE_MODULES / name).is_dir()), None)
        return next((name for name in self.needs if importlib.util.find_spec(name) is None), None)


def _python(file: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"bench.peers.servers.{file}", *arguments)


def _node(file: str, *arguments: str) -> tuple[str, ...]:
    return ("node", str(SERVERS / f"{file}.mjs"), *arguments)


def _ours(name: str, server: str, *, fresh_ids: bool = False) -> Contender:
    command = _python("ours", server, "{port}")
    return Contender(name, command, "http", CALL, "/agent/execute", fresh_ids=fresh_ids, needs=("hypercorn",))


HELLO = (
    {
        "jsonrpc": "2.0",
        "id": "hello",
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
)


def _over_http(name: str, command: tuple[str, ...], *needs: str) -> Contender:
    """A server of MCP."""
    return Contender(name, command, "http", MCP_CALL, "/mcp", MCP, HELLO, needs=needs)


NATIVE, NATIVE_IDS, HYPERCORN = "carmy native", "carmy native, request_id", "carmy hypercorn"
FASTAPI, BARE_UVICORN, EXPRESS = "FastAPI on uvicorn", "bare uvicorn", "Express"

HTTP = (
    _ours(NATIVE, "native"),
    _ours(NATIVE_IDS, "native", fresh_ids=True),
    _ours(HYPERCORN, "hypercorn"),
    Contender(
        FASTAPI, _python("fastapi_app", "{port}"), "http", SEARCH, "/search", needs=("fastapi", "uvicorn", "uvloop")
    ),
    Contender(
        "Starlette on uvicorn",
        _python("starlette_app", "{port}"),
        "http",
        SEARCH,
        "/search",
        needs=("starlette", "uvicorn", "uvloop"),
    ),
    Contender(
        BARE_UVICORN, _python("bare", "uvicorn", "{port}"), "http", SEARCH, "/search", needs=("uvicorn", "uvloop")
    ),
    Contender(
        "bare hypercorn", _python("bare", "hypercorn", "{port}"), "http", SEARCH, "/search", needs=("hypercorn",)
    ),
    Contender(EXPRESS, _node("express_app", "{port}"), "http", SEARCH, "/search", needs=("express",)),
    _over_http("carmy MCP over HTTP", _python("ours", "mcp-http", "{port}")),
    _over_http("carmy MCP over HTTP, native", _python("ours", "mcp-native", "{port}")),
    _over_http("FastMCP over HTTP", _python("mcp_app", "fastmcp", "{port}"), "fastmcp", "uvicorn", "uvloop"),
    _over_http("MCP SDK over HTTP", _python("mcp_app", "sdk", "{port}"), "mcp", "uvicorn", "uvloop"),
    _over_http("TypeScript MCP SDK over HTTP", _node("mcp_app", "{port}"), "@modelcontextprotocol/sdk", "express"),
)

LINES = (
    Contender("carmy stdio", _python("ours", "stdio"), "lines", {"op": "call", **CALL}),
    Contender("carmy MCP over stdio", _python("ours", "mcp"), "lines", MCP_CALL, hello=HELLO),
    Contender(
        "FastMCP over stdio",
        _python("mcp_app", "fastmcp", "stdio"),
        "lines",
        MCP_CALL,
        hello=HELLO,
        needs=("fastmcp",),
    ),
    Contender("MCP SDK over stdio", _python("mcp_app", "sdk", "stdio"), "lines", MCP_CALL, hello=HELLO, needs=("mcp",)),
    Contender(
        "TypeScript MCP SDK over stdio",
        _node("mcp_app", "stdio"),
        "lines",
        MCP_CALL,
        hello=HELLO,
        needs=("@modelcontextprotocol/sdk",),
    ),
)


def products_in(answer: bytes) -> Any:
    """The products that an answer holds, whichever envelope they are in."""
    # An answer over MCP may come as the only event of a stream.
    lines = answer.splitlines()
    found = json.loads(next((line[6:] for line in lines if line.startswith(b"data: {")), answer))
    if isinstance(found, dict) and "result" in found:
        found = found["result"]
    for name in ("data", "structuredContent", "result"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    return found


def check(name: str, answer: bytes) -> None:
    """Refuse to measure who does not answer what was asked."""
    if products_in(answer) != EXPECTED:
        raise AssertionError(f"{name} answered {answer[:300]!r}")
