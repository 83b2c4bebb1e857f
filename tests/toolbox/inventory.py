"""The tools of a warehouse: a provider with a dependency, and two functions."""

from __future__ import annotations

import trio

from carmy_engine import AgentContext, AgentError, tool


class InventoryTools:
    """Stock by SKU, as an object that was given what it needs."""

    def __init__(self, stock: dict[str, int]) -> None:
        self.stock = stock

    @tool(effect="read", name="inventory.lookup", description="Units in stock for a SKU.")
    def lookup(self, sku: str, warehouse: str | None = None) -> int:
        return self.stock.get(sku, 0)

    @tool(effect="write", name="inventory.reserve", description="Reserves units of a SKU for the calling tenant.")
    async def reserve(self, sku: str, count: int, context: AgentContext) -> str:
        await trio.lowlevel.checkpoint()
        in_stock = self.stock.get(sku, 0)
        if count > in_stock:
            raise AgentError("OUT_OF_STOCK", f"only {in_stock} x {sku} in stock", "conflict")
        self.stock[sku] = in_stock - count
        return f"reserved {count} x {sku} for {context.metadata.get('tenant', '(no tenant)')}"


@tool(effect="external_write", name="billing.refund", register=False)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@tool(effect="read", parallel_safe=True, register=False)
async def search(query: str, limit: int = 10) -> list[str]:
    """Search the catalog."""
    return [f"{query} {number}" for number in range(limit)]
