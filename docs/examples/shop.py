"""A small shop: one tool of every kind that matters. The tutorial goes through it step by step.

::

    carmy serve docs/examples/shop.py
    carmy call docs/examples/shop.py search '{"query": "mouse"}'
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Annotated, Literal

import trio
from pydantic import BaseModel, Field

from carmy_engine import AgentContext, AgentError, App, ErrorCategory, State, tool


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """Something to buy; the price is in cents."""

    sku: str
    name: str
    price: int


@dataclasses.dataclass(slots=True)
class Order:
    """An order of one product."""

    id: int
    sku: str
    quantity: int
    total: int
    customer: str | None
    status: Literal["placed", "cancelled"] = "placed"


CATALOG = (
    Product("MO-1", "Quiet mouse", 2490),
    Product("MO-2", "Wireless mouse", 3990),
    Product("MO-3", "Mouse pad", 990),
    Product("KB-1", "Compact keyboard", 6900),
    Product("KB-2", "Split keyboard", 14900),
    Product("MN-1", "Monitor, 27 inches", 24900),
    Product("HP-1", "Headphones", 8900),
)


class Database:
    """Orders and stock, in memory. Tools reach it as ``State[Database]``; callers never see it."""

    def __init__(self, stock: int = 10) -> None:
        self.products = {product.sku: product for product in CATALOG}
        self.stock = dict.fromkeys(self.products, stock)
        self.orders: dict[int, Order] = {}
        self._ids = itertools.count(1)

    def place(self, sku: str, quantity: int, customer: str | None) -> Order:
        """Take products from the stock. Nothing in here awaits, so nothing can come between the lines.

        Raises:
            AgentError: ``UNKNOWN_PRODUCT`` or ``OUT_OF_STOCK``.
        """
        product = self.products.get(sku)
        if product is None:
            raise AgentError(
                "UNKNOWN_PRODUCT",
                f"there is no product {sku!r}",
                ErrorCategory.NOT_FOUND,
                recoverable=True,
                suggested_action="Find its sku with search.",
            )
        if self.stock[sku] < quantity:
            raise AgentError(
                "OUT_OF_STOCK",
                f"{self.stock[sku]} left of {product.name}",
                ErrorCategory.CONFLICT,
                recoverable=True,
                details={"available": self.stock[sku]},
            )
        self.stock[sku] -= quantity
        order = Order(next(self._ids), sku, quantity, product.price * quantity, customer)
        self.orders[order.id] = order
        return order

    def cancel(self, order_id: int) -> Order:
        """Put the products of an order back.

        Raises:
            AgentError: ``UNKNOWN_ORDER`` or ``ALREADY_CANCELLED``.
        """
        order = self.orders.get(order_id)
        if order is None:
            raise AgentError("UNKNOWN_ORDER", f"there is no order {order_id}", ErrorCategory.NOT_FOUND)
        if order.status == "cancelled":
            raise AgentError("ALREADY_CANCELLED", f"order {order_id} is cancelled", ErrorCategory.CONFLICT)
        order.status = "cancelled"
        self.stock[order.sku] += order.quantity
        return order


@tool(effect="read", idempotent=True, parallel_safe=True)
async def search(query: str, limit: Annotated[int, Field(ge=1, le=100)] = 10) -> list[Product]:
    """Search the catalog.

    Args:
        query: Words to look for.
        limit: Most results to return.
    """
    words = query.lower().split()
    return [product for product in CATALOG if all(word in product.name.lower() for word in words)][:limit]


class CreateOrder(BaseModel):
    """What to order."""

    sku: str = Field(description="The product, as search returned it.")
    quantity: int = Field(1, ge=1, le=100)


@tool(effect="write", parallel_safe=True, description="Place an order")
async def create_order(db: State[Database], ctx: AgentContext, input: CreateOrder) -> Order:  # noqa: A002
    """Take it from the stock, for the caller: who that is comes from the context, never from the request."""
    return db.place(input.sku, input.quantity, ctx.principal)


@tool(effect="destructive", description="Cancel an order. It cannot be placed again under its number.")
async def cancel_order(db: State[Database], order_id: int) -> Order:
    """Put it back into the stock."""
    return db.cancel(order_id)


@dataclasses.dataclass(frozen=True, slots=True)
class Turnover:
    """What one product has brought in, in cents."""

    sku: str
    orders: int
    total: int


@tool(effect="read", timeout=60)
async def report(
    db: State[Database], ctx: AgentContext, pause: Annotated[float, Field(ge=0, le=5)] = 0.5
) -> list[Turnover]:
    """Add up all orders, product by product. Slow; tells how far it is, and each product's line once it is known.

    Args:
        pause: Seconds per product, since a real report would have something to compute.
    """
    lines: list[Turnover] = []
    for done, sku in enumerate(db.products, 1):
        await trio.sleep(pause)
        orders = [order for order in db.orders.values() if order.sku == sku and order.status == "placed"]
        lines.append(Turnover(sku, len(orders), sum(order.total for order in orders)))
        await ctx.progress.partial(dataclasses.asdict(lines[-1]))
        ctx.progress.report(done, len(db.products), f"{sku} is done")
    return lines


app = App("shop", timeout=30).add(search, create_order, cancel_order, report).state(Database())

if __name__ == "__main__":
    app.run()
