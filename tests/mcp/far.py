"""MCP servers that are none of ours: the official SDK's, and one that follows a script line by line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

PATHS = {"PYTHONPATH": ":".join(path for path in sys.path if path)}

OFFICIAL = '''
import trio
from typing import Annotated

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("official", log_level="ERROR")


class Weather(BaseModel):
    city: str
    degrees: float


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def weather(city: str) -> Weather:
    """An object."""
    return Weather(city=city, degrees=21.5)


@server.tool(annotations=ToolAnnotations(destructive_hint=False, open_world_hint=False, idempotent_hint=True))
def add(a: int, b: int) -> int:
    """A number, which the SDK wraps."""
    return a + b


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def wipe(path: str) -> str:
    """Destroys."""
    return path


@server.tool(structured_output=False)
def text(words: str) -> str:
    """Text without structure."""
    return words


@server.tool(structured_output=False)
def several() -> list[str]:
    """Several blocks of text."""
    return ["one", "two"]


@server.tool(structured_output=False)
def nothing() -> None:
    """No block at all."""


@server.tool()
def picture() -> Image:
    """An image."""
    return Image(data=b"\\x89PNG", format="png")


@server.tool()
def fail(words: str) -> str:
    """An error in the words of the server."""
    raise ValueError(words)


@server.tool()
async def steps(count: int, ctx: Context) -> int:
    """Reports."""
    for number in range(count):
        await ctx.report_progress(number + 1, count, f"step {number + 1}")
    return count


@server.tool()
async def ask(ctx: Context) -> str:
    """Asks the person behind the client."""
    answer = await ctx.elicit("really?", Weather)
    return answer.action


def really() -> Elicit[Weather]:
    return Elicit("really?", Weather)


@server.tool()
async def forecast(weather: Annotated[Weather, Resolve(really)]) -> str:
    """Asks in either way."""
    return f"{weather.city} {weather.degrees}"


@server.resource("notes://first", mime_type="text/markdown")
def first() -> str:
    """A note."""
    return "# milk"


@server.resource("pictures://{name}", mime_type="image/png")
def pictures(name: str) -> bytes:
    """A picture."""
    return name.encode()


@server.prompt()
def greet(name: str, style: str = "short") -> str:
    """A greeting."""
    return f"Greet {name}, {style}!"
'''

SCRIPTED = r"""
import json, os, sys

directory = sys.argv[1]
asked = {}
extra = []


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(name, text=""):
    with open(os.path.join(directory, name), "a") as file:
        file.write(text)


def tool(name, **hints):
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": hints}


NAMES = ["count", "die", "read", "hang", "nan", "huge", "broken", "sample", "change", "refuse", "environment", "promise", "noise", "elicit", "talk", "flood"]


NOISE = [
    b"",
    b"null",
    b"[]",
    b"\xff\xfe",
    b"{" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"id": null, "result": {}}',
    b'{"id": 1}',
    b'{"id": 10000, "result": {}}',
    b'{"id": 10000, "error": 5}',
    b'{"id": [], "result": {}}',
    b'{"id": "q", "method": "unknown/thing"}',
    b'{"id": "q", "method": "elicitation/create", "params": {"nonsense": 1}}',
    b'{"method": "notifications/progress", "params": {"progressToken": [], "progress": 1}}',
    b'{"method": "notifications/progress", "params": {"progressToken": "carmy-1", "progress": "far"}}',
    b'{"method": "notifications/message", "params": {"level": 5}}',
    b'{"method": "notifications/unknown", "params": []}',
    b'{"jsonrpc": "1.0", "method": 5}',
]


FORM = {
    "message": "really?",
    "requestedSchema": {"type": "object", "properties": {"color": {"type": "string", "default": "red"}}},
}


def listing(params):
    position = int(params.get("cursor") or 0)
    tools = [tool(name, readOnlyHint=name == "read") for name in NAMES + extra]
    tools[NAMES.index("promise")].update(outputSchema={"type": "object"})
    if extra:
        tools[-1].update(outputSchema={"type": "object"})
    page = {"tools": tools[position : position + 5]}
    if position + 5 < len(tools):
        page["nextCursor"] = str(position + 5)
    return page


def call(id, name, arguments):
    if name == "count":
        note("count", "x")
        send(id=id, result={"content": [{"type": "text", "text": "counted"}]})
    elif name == "die" or name == "read":
        print("my last words", file=sys.stderr, flush=True)
        os._exit(3)
    elif name == "hang":
        note("hangs")
    elif name == "nan":
        send(id=id, result={"content": [], "structuredContent": {"a": [1.0, float("nan")]}})
    elif name == "huge":
        send(id=id, result={"content": [{"type": "text", "text": "x" * arguments["size"]}], "isError": True})
    elif name == "broken":
        send(id=id, result={"content": "no blocks"})
    elif name == "sample":
        asked["s1"] = id
        send(id="s1", method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
    elif name == "change":
        extra.append("new")
        send(method="notifications/tools/list_changed")
        send(id=id, result={"content": []})
    elif name == "refuse":
        send(id=id, error={"code": -32603, "message": "no " * 5000})
    elif name == "environment":
        send(id=id, result={"content": [{"type": "text", "text": " ".join(sorted(os.environ))}]})
    elif name == "noise":
        for line in NOISE:
            sys.stdout.buffer.write(line + b"\n")
        sys.stdout.flush()
        send(id=id, result={"content": [{"type": "text", "text": "heard"}]})
    elif name == "elicit":
        asked["e1"] = id
        send(id="e1", method="elicitation/create", params=FORM)
    elif name == "talk":
        for number in range(arguments["count"]):
            send(method="notifications/message", params={"level": "info", "data": f"line {number}"})
        send(id=id, result={"content": [{"type": "text", "text": "said"}]})
    elif name == "flood":
        for number in range(1000):
            send(id=f"f{number}", method="elicitation/create", params=FORM)
        send(id=id, result={"content": [{"type": "text", "text": "flooded"}]})
    elif name == "new":
        send(id=id, result={"content": []})
    else:
        send(id=id, result={"content": [{"type": "text", "text": "no structure"}]})


print("a print that went astray")
for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        info = {"name": "scripted", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        send(id=id, result={"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info})
    elif method == "tools/list" and len(extra) > 1:
        data = {"error": {"code": "FORBIDDEN", "message": "", "category": "permission", "recoverable": False, "retryable": False}}
        send(id=id, error={"code": -32602, "message": "no", "data": data})
    elif method == "tools/list":
        send(id=id, result=listing(params))
    elif method == "tools/call":
        note("meta", json.dumps(params.get("_meta")) + "\n")
        call(id, params["name"], params.get("arguments"))
    elif method == "notifications/cancelled":
        note("cancelled", "x")
    elif method is None and id in asked:
        text = message["error"]["message"] if "error" in message else json.dumps(message["result"])
        send(id=asked.pop(id), result={"content": [{"type": "text", "text": text}]})
    elif id is not None:
        send(id=id, error={"code": -32601, "message": "no such method"})
"""


def official() -> list[str]:
    """The command of a server of the official SDK."""
    return [sys.executable, "-c", OFFICIAL + "\ntrio.run(server.run_stdio_async)\n"]


def scripted(directory: Path) -> list[str]:
    """The command of a server that notes in a directory what it is told."""
    return [sys.executable, "-c", SCRIPTED, str(directory)]


def official_server() -> Any:
    """The same server of the official SDK, in this process."""
    names: dict[str, Any] = {"__name__": "official"}
    exec(OFFICIAL, names)
    return names["server"]
