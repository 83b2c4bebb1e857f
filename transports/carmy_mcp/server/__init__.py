"""An engine in front of MCP clients."""
