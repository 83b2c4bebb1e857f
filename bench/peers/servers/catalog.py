"""The tool and the data of every contender: a search for a word among 64 products.

It imports nothing, so that it adds the same to each of them. The programs for Node read the same products from
``catalog.json``, which a test compares with this.
"""

from __future__ import annotations

from typing import TypedDict

KINDS = ("mouse", "keyboard", "screen", "cable", "dock", "lamp", "chair", "desk")

QUERY = "mouse"


class Product(TypedDict):
    sku: str
    name: str
    price_cents: int


PRODUCTS: list[Product] = [
    {"sku": f"SKU-{number}-{kind}", "name": f"{kind} {number}", "price_cents": 100 * number + 99}
    for number in range(8)
    for kind in KINDS
]


EXPECTED = [product for product in PRODUCTS if QUERY in product["name"]]
