"""Two agents and one warehouse: triage may look, fulfilment may also reserve. A script plays the model.

Triage has a subset of the tools that changes nothing. When its model hands over, fulfilment goes on with a subset of its own,
in the same run, so that a turn that is run again repeats no effect.

Run with ``python two_agents.py``. With a real model, `ScriptedModel` is the one thing to replace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import trio

from carmy_engine import AgentContext, AgentError, App, BoundEngine, RunContext, ToolRegistry, tool

Message = dict[str, Any]


class InventoryTools:
    """Stock by SKU."""

    def __init__(self, stock: dict[str, int]) -> None:
        self.stock = stock

    @tool(effect="read", idempotent=True, parallel_safe=True, name="inventory.lookup")
    async def lookup(self, sku: str) -> int:
        """Units in stock for a SKU."""
        return self.stock.get(sku, 0)

    @tool(effect="write", name="inventory.reserve")
    async def reserve(self, sku: str, count: int, context: AgentContext) -> str:
        """Reserve units of a SKU for the calling tenant."""
        in_stock = self.stock.get(sku, 0)
        if count > in_stock:
            raise AgentError("OUT_OF_STOCK", f"only {in_stock} x {sku} in stock", "conflict")
        self.stock[sku] = in_stock - count
        return f"reserved {count} x {sku} for {context.metadata['tenant']}"


@tool(effect="none", name="handoff.fulfilment", register=False)
async def hand_to_fulfilment(reason: str) -> str:
    """Let the fulfilment agent go on."""
    return f"handed over: {reason}"


class ScriptedModel:
    """Answers with the turns of a script, in the format of chat completions, whatever it is asked."""

    def __init__(self, turns: Iterable[Sequence[tuple[str, dict[str, Any]]] | str]) -> None:
        self._turns = list(turns)
        self._asked = 0

    async def complete(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        """The next message of the assistant."""
        await trio.lowlevel.checkpoint()
        turn = self._turns[self._asked]
        self._asked += 1
        if isinstance(turn, str):
            return {"role": "assistant", "content": turn}
        calls = [
            {
                "id": f"call_{self._asked}_{place}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for place, (name, arguments) in enumerate(turn)
        ]
        return {"role": "assistant", "content": None, "tool_calls": calls}


async def run_agent(model: ScriptedModel, engine: BoundEngine, messages: list[Message]) -> bool:
    """Let a model work until it answers in words, or hands over.

    Returns:
        True when it hands over.
    """
    provider = engine.provider("openai")
    while True:
        message = await model.complete(messages, provider.tools)
        messages.append(message)
        results = await engine.run_calls(provider.parse(message))
        messages += provider.render(results)
        if not results:
            return False
        if any(one.call.tool == "handoff.fulfilment" and one.result.error is None for one in results):
            return True


async def serve_order(tools: ToolRegistry, model: ScriptedModel, order: str) -> list[Message]:
    """Take an order through both agents; returns the conversation."""
    messages: list[Message] = [{"role": "user", "content": order}]
    async with App("two-agents").add(tools).open() as engine:
        run = RunContext(thread_id="order-1001", run_id="run-1", metadata={"tenant": "acme"}, caller_id="triage")
        triage = engine.bind(run=run).subset("inventory.lookup", "handoff.fulfilment")
        if await run_agent(model, triage, messages):
            run = RunContext(
                thread_id="order-1001", run_id="run-1", metadata={"tenant": "acme"}, caller_id="fulfilment"
            )
            fulfilment = engine.bind(run=run).subset("inventory.lookup", "inventory.reserve")
            await run_agent(model, fulfilment, messages)
    return messages


SCRIPT: list[list[tuple[str, dict[str, Any]]] | str] = [
    [("inventory_lookup", {"sku": "AB-12"}), ("inventory_lookup", {"sku": "CD-34"})],
    [("inventory_reserve", {"sku": "AB-12", "count": 2})],  # not triage's to do, whatever it tries
    [("handoff_fulfilment", {"reason": "AB-12 is in stock"})],
    [("inventory_reserve", {"sku": "AB-12"})],
    [("inventory_reserve", {"sku": "AB-12", "count": 9})],
    [("inventory_reserve", {"sku": "AB-12", "count": 2})],
    "Two AB-12 are reserved.",
]


def main() -> None:
    """Play the script and print what the tools answered."""
    tools = ToolRegistry().register(InventoryTools({"AB-12": 7}), hand_to_fulfilment)
    for message in trio.run(serve_order, tools, ScriptedModel(SCRIPT), "Two AB-12, please."):
        print(f"{message['role']}: {message['content'] or ', '.join(_written(message))}")


def _written(message: Message) -> list[str]:
    return [f"{call['function']['name']}{call['function']['arguments']}" for call in message["tool_calls"]]


if __name__ == "__main__":
    main()
