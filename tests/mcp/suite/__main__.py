"""Run the official conformance suite against ``carmy mcp --http`` and `open_mcp`, and compare its failures with ``expected.yml``.

    python -m tests.mcp.suite [NODE [SUITE]]

`NODE` is Node 22 or newer, and `SUITE` the folder of the npm package ``@modelcontextprotocol/conformance``; ``make mcp-conformance`` installs both.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
VERSIONS = ("2025-06-18", "2025-11-25", "2026-07-28")
COMMAND = [sys.executable, "-c", "from carmy_engine.cli import main; main()", "mcp", str(HERE / "everything.py")]
CLIENT_SCENARIOS = {
    "2025-06-18": ("initialize", "tools_call"),
    "2025-11-25": ("elicitation-sep1034-client-defaults", "sse-retry", "json-schema-2020-12-preservation"),
    "2026-07-28": (
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
    ),
}
"""All scenarios for clients but those of authorization (``auth/``) and of extensions. The client gets its token from the host, and runs
no authorization flow; of the extensions (``auth/`` again, and skills, ``sep-2640``), it declares none."""

LISTENING = re.compile(r"listening on (\S+)")


def main() -> int:
    """The exit code: 1 after an unexpected failure, or an expected one that did not come."""
    modules = HERE.parent / "node" / "node_modules"
    node = sys.argv[1] if len(sys.argv) > 1 else str(next(modules.glob("node-*/bin/node"), "node"))
    suite = Path(sys.argv[2]) if len(sys.argv) > 2 else modules / "@modelcontextprotocol" / "conformance"
    program = [node, str(suite / "dist" / "index.js")]
    failed = False
    server = subprocess.Popen([*COMMAND, "--http", "--address", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        while (found := LISTENING.search(server.stderr.readline())) is None:
            if server.poll() is not None:
                return 1
        with tempfile.TemporaryDirectory() as directory:
            for version in VERSIONS:
                options = ["--url", found[1], "--suite", "all", "--spec-version", version, "-o", directory]
                failed |= _run([*program, "server", *options], "server", version)
    finally:
        server.terminate()
        server.wait()
    for version, scenarios in CLIENT_SCENARIOS.items():
        for scenario in scenarios:
            failed |= _run_client(program, scenario, version)
    return int(failed)


def _run_client(program: list[str], scenario: str, version: str) -> bool:
    client = shlex.join([sys.executable, "-m", "tests.mcp.suite.client"])
    options = ["--command", client, "--scenario", scenario, "--spec-version", version]
    done = subprocess.run([*program, "client", *options], capture_output=True, text=True, check=False)
    result = _found(r"Passed: .*", done.stdout + done.stderr)
    print(f"client {version} {scenario}: {result}, exit code {done.returncode}")
    failed = done.returncode != 0 or not result.endswith(", 0 failed, 0 warnings")
    if failed:
        print(done.stdout, done.stderr)
    return failed


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[0] if found else "no result"


def _run(command: list[str], what: str, version: str) -> bool:
    expected = ["--expected-failures", str(HERE / f"expected-{version}.yml")]
    done = subprocess.run([*command, *expected], capture_output=True, text=True, check=False)
    print(f"{what} {version}: {_found(r'Total: .*', done.stdout)}, exit code {done.returncode}")
    if done.returncode:
        print(
            "\n".join(line for line in done.stdout.splitlines() if "✗" in line or "nexpected" in line or "tale" in line)
        )
    return bool(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
