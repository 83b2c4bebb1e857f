"""Clients of other makers against ``carmy mcp``, each in an environment of its own: ``python -m tests.mcp.clients``."""
