"""Tools as LlamaIndex tools."""

from __future__ import annotations

import asyncio

import pytest

from carmy_engine import aio, blocking
from tests.integrations.shop import REPAIR, WRONG, make_app

pytest.importorskip("llama_index.core", reason="make test-agents installs the frameworks")

from carmy_engine.integrations.llama_index import llama_index_tools


def test_tools_have_names_schemas_and_results() -> None:
    """The schema is the engine's; errors are words for the model."""
    app, _ = make_app()

    async def main() -> None:
        async with aio.open_app(app) as engine:
            tools = {tool.metadata.name: tool for tool in llama_index_tools(engine, await engine.catalog())}
            function = tools["search"].metadata.to_openai_tool()["function"]
            assert function["parameters"]["required"] == ["query"]
            output = await tools["search"].acall(query="mouse", limit=1)
            assert (output.content, output.raw_output) == ('[{"name":"mouse 0"}]', [{"name": "mouse 0"}])
            wrong = await tools["order_create"].acall(**WRONG)
            assert (wrong.is_error, wrong.content) == (True, REPAIR)
            assert (await tools["delete_all"].acall()).is_error
            granted = engine.bind(permissions={"confirm:delete_all"})
            tools = {tool.metadata.name: tool for tool in llama_index_tools(granted, await granted.catalog())}
            assert (await tools["delete_all"].acall()).content == "deleted"

    asyncio.run(main())


def test_plain_calls() -> None:
    """With an executor of a program without a loop."""
    with blocking.open_app(make_app()[0]) as engine:
        tools = {tool.metadata.name: tool for tool in llama_index_tools(engine, engine.catalog())}
        assert tools["search"](query="mouse", limit=1).content == '[{"name":"mouse 0"}]'
