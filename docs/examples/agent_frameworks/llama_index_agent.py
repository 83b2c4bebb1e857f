"""Tools of the engine for LlamaIndex, called as an agent of its would.

pip install carmy-engine llama-index-core
python llama_index_agent.py
"""

from __future__ import annotations

import asyncio

from llama_index.core.tools import ToolSelection
from llama_index.core.tools.calling import acall_tool_with_selection
from shop import app

from carmy_engine import aio
from carmy_engine.integrations.llama_index import llama_index_tools

SCRIPT = [
    ToolSelection(tool_id="1", tool_name="search", tool_kwargs={"query": "mouse"}),
    ToolSelection(tool_id="2", tool_name="clear_cart", tool_kwargs={}),
]
"""In place of a model: the calls that it makes."""


async def main() -> None:
    """Make the calls; the host has granted the confirmation of one."""
    async with aio.open_app(app) as engine:
        granted = engine.bind(principal="ana", permissions={"confirm:clear_cart"})
        tools = llama_index_tools(granted, await granted.catalog())
        for selection in SCRIPT:
            output = await acall_tool_with_selection(selection, tools)
            print(f"{output.tool_name}: {output.content}")


if __name__ == "__main__":
    asyncio.run(main())
