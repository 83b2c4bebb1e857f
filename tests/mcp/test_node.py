"""The client of the TypeScript SDK, where Node and the package are installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mcp.conftest import COMMAND

SHOP = Path(__file__).parents[2] / "docs" / "examples" / "shop.py"

SCRIPT = """
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
(async () => {
  const [command, ...args] = process.argv.slice(2);
  const client = new Client({ name: "test", version: "1" });
  await client.connect(new StdioClientTransport({ command, args }));
  const { tools } = await client.listTools();
  const found = await client.callTool({ name: "search", arguments: { query: "mouse" } });
  const refused = await client.callTool({ name: "search", arguments: { quary: "mouse" } });
  console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), found, refused }));
  await client.close();
})();
"""


def test_the_typescript_client(tmp_path: Path) -> None:
    """It lists and calls, and accepts what it gets against the schemas that it was given."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node here")
    probe = [node, "-e", 'require.resolve("@modelcontextprotocol/sdk/client/index.js")']
    if subprocess.run(probe, cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("the package @modelcontextprotocol/sdk is not on NODE_PATH")
    script = tmp_path / "client.cjs"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [node, str(script), *COMMAND, str(SHOP)],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=40,
    )
    told = json.loads(done.stdout)
    assert "search" in told["tools"]
    assert told["found"]["structuredContent"]["result"][0]["sku"] == "MO-1"
    assert told["refused"]["_meta"]["carmy/error"]["code"] == "INVALID_ARGUMENTS"
