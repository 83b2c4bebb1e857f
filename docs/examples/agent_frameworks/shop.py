"""The application behind the agents of this folder."""

from __future__ import annotations

from carmy_engine import App

app = App("shop")


@app.tool(effect="read", parallel_safe=True)
async def search(query: str) -> list[str]:
    """Search the catalog.

    Args:
        query: Words to look for.
    """
    return [f"quiet {query}", f"loud {query}"]


@app.tool(effect="destructive")
async def clear_cart() -> str:
    """Remove everything from the cart."""
    return "the cart is empty"
