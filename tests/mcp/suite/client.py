"""The client of the official conformance suite: ``python -m tests.mcp.suite.client URL``, with the scenario in the environment.

It does what a person with an MCP client would do: list everything, call every tool, read every resource, and accept every question
without a change.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import trio

from carmy_engine import ExecutionRequest
from carmy_engine.abc import Answer
from carmy_engine.testing import ScriptedClient
from carmy_mcp import open_mcp

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: Mapping[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")

ARGUMENTS: Mapping[str, Mapping[str, Any]] = {"add_numbers": {"a": 5, "b": 3}, "valid_tool": {"region": "us-east1"}}
"""Of tools that need some, beside those of the context."""


async def main() -> None:
    """Do all that a server offers."""
    person = ScriptedClient(answers=[Answer("accept", {})] * 100, takes_logs=False)
    async with open_mcp(sys.argv[1], client=person) as client:
        tools = {tool.name: tool for tool in (await client.catalog()).tools}
        calls: list[Mapping[str, Any]] = CONTEXT.get("toolCalls") or [
            {"name": name, "arguments": ARGUMENTS.get(name, {})} for name in tools
        ]
        if "json_schema_echo" in tools:
            focal = next(tool for name, tool in tools.items() if name != "json_schema_echo")
            calls = [{"name": "json_schema_echo", "arguments": {"schema": dict(focal.input_schema)}}]
        for call in calls:
            request = ExecutionRequest(tool=call["name"], arguments=call["arguments"], timeout_ms=20_000)
            print(call["name"], await client.execute(request))
        for resource in (await client.resources()).resources:
            print(resource.uri, await client.read_resource(resource.uri or ""))
        for prompt in (await client.prompts()).prompts:
            print(prompt.name, await client.get_prompt(prompt.name))


if __name__ == "__main__":
    trio.run(main)
