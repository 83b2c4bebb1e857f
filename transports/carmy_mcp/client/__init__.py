"""An executor in front of an MCP server."""
