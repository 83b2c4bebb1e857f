"""A checkout as a graph, and the graph as one tool for programs and models.

``carmy serve checkout.py`` serves it over HTTP, and ``carmy mcp checkout.py`` to clients of MCP. A call that is sent again with its
``request_id`` continues the run, even after the server was killed: the order is reserved, charged and booked once.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import trio

from carmy_engine import AgentContext, App, Completed, NotStarted, Settlement, tool
from carmy_engine.graph import NodeContext, StateGraph

LEDGER = Path("ledger.txt")
"""Stands for the systems outside: a line for each effect."""


def enter(line: str) -> None:
    """Have an effect outside."""
    with LEDGER.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def entries() -> list[str]:
    """Ask the systems outside."""
    return LEDGER.read_text(encoding="utf-8").splitlines() if LEDGER.exists() else []


async def look_up(ctx: AgentContext, arguments: dict[str, str]) -> Settlement:
    """What has become of a call that was cut off: the systems outside have it, or not."""
    line = " ".join(map(str, arguments.values()))
    known = await trio.to_thread.run_sync(entries)
    return Completed(line) if line in known else NotStarted()


@tool(effect="external_write", parallel_safe=True, reconcile=look_up)
def book(step: str, order: str) -> str:
    """Do one step of an order in another system."""
    line = f"{step} {order}"
    enter(line)
    return line


@dataclasses.dataclass(frozen=True)
class Order:
    """The state.

    Attributes:
        number: The number of the order.
        reserved: The entry about the stock.
        charged: The entry about the card.
        parcel: The entry about the parcel.
    """

    number: str
    reserved: str | None = None
    charged: str | None = None
    parcel: str | None = None


async def reserve(order: Order, ctx: NodeContext) -> Order:
    return dataclasses.replace(order, reserved=await ctx.call(book, step="reserve", order=order.number))


async def charge(order: Order, ctx: NodeContext) -> Order:
    return dataclasses.replace(order, charged=await ctx.call(book, step="charge", order=order.number))


async def ship(order: Order, ctx: NodeContext) -> Order:
    return dataclasses.replace(order, parcel=await ctx.call(book, step="ship", order=order.number))


checkout = (
    StateGraph(Order, name="checkout")
    .node("reserve", reserve)
    .node("charge", charge, timeout=10, retries=2)
    .node("ship", ship)
    .edge("reserve", "charge")
    .edge("charge", "ship")
    .compile()
)
app = App("checkout").store("sqlite:checkout.db")
app.add(book, checkout.as_tool("checkout", effect="external_write", description="Check an order out."))

if __name__ == "__main__":
    app.run()
