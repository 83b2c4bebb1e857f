"""The client in front of the examples of the TypeScript SDK, where ``make node`` has installed it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from carmy_engine import ToolProgress
from carmy_mcp import open_mcp
from tests.mcp.test_client import compare, request

EXAMPLES = Path(__file__).parent / "node/node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server"

NODE = shutil.which("node") or "node"

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not EXAMPLES.exists(), reason="the SDK for Node is not installed: make node"
)


@pytest.mark.parametrize(
    ("example", "tool", "good", "bad"),
    [
        ("mcpServerOutputSchema.js", "get_weather", {"city": "Rome", "country": "IT"}, {"city": 1}),
        ("progressExample.js", "count", {"n": 2}, {"n": 0}),
    ],
)
async def test_shadowing(example: str, tool: str, good: dict[str, Any], bad: dict[str, Any]) -> None:
    """A tool gives what a direct call gets, errors and structure as well, and its reports come in order."""
    command = [NODE, str(EXAMPLES / example)]
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    with trio.fail_after(50):
        async with open_mcp(command) as ours, Client(stdio_client(parameters)) as theirs:
            (listed,) = (await theirs.list_tools()).tools
            (spec,) = (await ours.catalog()).tools
            assert (spec.name, spec.input_schema) == (listed.name, listed.input_schema)
            compare(await ours.execute(request(tool, **bad)), await theirs.call_tool(tool, bad))
            answer = await theirs.call_tool(tool, good)
            async with ours.stream(request(tool, **good)) as channel:
                events: list[Any] = [event async for event in channel]
            result = events[-1].result
            if answer.structured_content is None:
                compare(result, answer)
                assert [event.progress for event in events if isinstance(event, ToolProgress)][-1] == 2
            else:
                assert result.data.keys() == answer.structured_content.keys()  # the values are made up
