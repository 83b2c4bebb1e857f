"""A service to deploy: one tool, callers with tokens, settings from ``carmy.toml`` beside it."""

from __future__ import annotations

import os

from carmy_engine import AgentContext, App, BearerTokens

# Tokens are secrets: the service manager passes them, and no file of the project contains them.
tokens = BearerTokens({os.environ["SHOP_TOKEN"]: AgentContext(principal="shop-agent")})

app = App("shop").authenticate(tokens)


@app.tool(effect="external_write", parallel_safe=True)
async def order(sku: str, quantity: int = 1) -> str:
    """Order something.

    Args:
        sku: What.
        quantity: How many.
    """
    return f"{quantity} x {sku}"
