"""Call ``carmy mcp`` with the clients of other makers, and leave it with a call running, in every way there is.

    python -m tests.mcp.clients [--only NAME]... [--environments FOLDER]

Each client gets an environment of its own in a temporary folder (or in `FOLDER`, where it is kept), made by uv or pip, and npm. A client
passes if it has got its answers, no exception has come out of it, the tool's clean-up has run, and neither the server that it has
started nor the tool's child process is left.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-c", "from carmy_engine.cli import main; main()", "mcp", str(HERE / "served.py")]
LISTENING = re.compile(r"listening on (\S+)")
MODES = ("call", "timeout", "close", "kill")
CASE_SECONDS = 90.0
"""For one client in one mode."""

LEAVE_SECONDS = 20.0
"""For what a client has left to end."""

BOTH = ("stdio", "http")


@dataclasses.dataclass(frozen=True)
class Client:
    """A client.

    Attributes:
        name: In the table.
        library: The part of ``client.py`` or ``client.mjs``; ``inspector`` for the command line of the Inspector.
        packages: What its environment has.
        wires: How it can connect.
        modes: What it can do.
    """

    name: str
    library: str
    packages: tuple[str, ...]
    wires: tuple[str, ...] = BOTH
    modes: tuple[str, ...] = MODES

    @property
    def is_node(self) -> bool:
        """True if it runs on Node."""
        return self.packages[0].startswith("@")


OLD_PYDANTIC = "pydantic==2.10.6"
"""Versions of the official SDK before 1.12 import what later ones no longer have."""

CLIENTS = (
    Client("mcp 1.2", "sdk", ("mcp==1.2.1", OLD_PYDANTIC), wires=("stdio",)),
    Client("mcp 1.9", "sdk", ("mcp==1.9.4", OLD_PYDANTIC)),
    Client("mcp 1.30", "sdk", ("mcp==1.30.0",)),
    Client("mcp 2.0", "sdk", ("mcp==2.0.1",)),
    Client("mcp 2.3", "sdk", ("mcp==2.3.0",)),
    Client("mcp 2.3, Client", "sdk_client", ("mcp==2.3.0",)),
    Client("FastMCP 2", "fastmcp", ("fastmcp==2.14.7",)),
    Client("FastMCP 4", "fastmcp", ("fastmcp==4.2.3",)),
    Client("FastMCP 4, proxy", "fastmcp_proxy", ("fastmcp==4.2.3",)),
    Client("OpenAI Agents", "openai_agents", ("openai-agents==0.24.0",)),
    Client("Pydantic AI", "pydantic_ai", ("pydantic-ai-slim[mcp]==2.68.0",)),
    Client("LangChain", "langchain", ("langchain-mcp-adapters==0.3.2",)),
    Client("LlamaIndex", "llama_index", ("llama-index-tools-mcp==0.6.0",)),
    Client("TypeScript 1.0", "v1", ("@modelcontextprotocol/sdk@1.0.4",), wires=("stdio",)),
    Client("TypeScript 1.10", "v1", ("@modelcontextprotocol/sdk@1.10.2",)),
    Client("TypeScript 1.32", "v1", ("@modelcontextprotocol/sdk@1.32.2",)),
    Client("TypeScript 2.4", "v2", ("@modelcontextprotocol/client@2.4.0",)),
    Client("Inspector", "inspector", ("@modelcontextprotocol/inspector@2.12.0",), modes=("call",)),
)


def install(client: Client, environments: Path) -> Path:
    """The folder of a client's environment."""
    folder = environments / re.sub(r"[^a-z0-9.]+", "-", "_".join(client.packages).lower()).strip("-")
    done = folder / "installed"
    if done.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    if client.is_node:
        (folder / "package.json").write_text('{"private": true}')
        options = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        _quietly(["npm", "install", *options, *client.packages], cwd=folder)
        shutil.copy(HERE / "client.mjs", folder)
    elif uv := shutil.which("uv"):
        _quietly([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder / "venv")])
        python = str(folder / "venv" / "bin" / "python")
        _quietly([uv, "pip", "install", "--quiet", "--python", python, *client.packages])
    else:
        _quietly([sys.executable, "-m", "venv", str(folder / "venv")])
        pip = [
            str(folder / "venv" / "bin" / "python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
        ]
        _quietly([*pip, *client.packages])
    done.touch()
    return folder


def _quietly(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError(f"not installed: {(done.stderr or done.stdout).strip()[-300:]}")


class FailedError(Exception):
    """What a client has not done, or what it has left."""


def command_of(client: Client, environment: Path, wire: str, mode: str, folder: Path, target: list[str]) -> list[str]:
    """The command of a client."""
    if client.library == "inspector":
        program = [str(environment / "node_modules" / ".bin" / "mcp-inspector"), "--cli", *target]
        transport = ["--transport", "http"] if wire == "http" else []
        arguments = ["--tool-name", "add", "--tool-arg", "a=1", "--tool-arg", "b=2"]
        return [*program, *transport, "--method", "tools/call", *arguments]
    if client.is_node:
        program = ["node", str(environment / "client.mjs")]
    else:
        program = [str(environment / "venv" / "bin" / "python"), "-I", str(HERE / "client.py")]
    return [*program, client.library, wire, mode, str(folder), *target]


def run(client: Client, environment: Path, wire: str, mode: str, target: list[str]) -> None:
    """Run one client in one mode, and look at what it has left.

    Raises:
        FailedError: Anything is not as it should be.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = command_of(client, environment, wire, mode, folder, target)
        output = folder / "output"
        with output.open("w") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
            try:
                code = process.wait(CASE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise FailedError(f"it did not end; it wrote: {output.read_text()[-500:]}") from None
        text = output.read_text()
        if code != (-9 if mode == "kill" else 0):
            raise FailedError(f"exit code {code}; it wrote: {text[-500:]}")
        if "Traceback" in text or "UnhandledPromiseRejection" in text:
            raise FailedError(f"an exception came out: {text[-500:]}")
        if mode in ("call", "timeout") and "3" not in text:
            raise FailedError(f"no sum in {text[-500:]!r}")
        if mode == "call":
            return
        if not (folder / "started").exists():
            raise FailedError("the tool has not run")
        server, child = map(int, (folder / "started").read_text().split())
        leftovers: dict[str, Callable[[], bool]] = {
            "the clean-up of the tool has not run": (folder / "finally").exists,
            f"the child process {child} is left": lambda: not _lives(child),
        }
        if wire == "stdio":
            leftovers[f"the server {server} is left"] = lambda: not _lives(server)
        deadline = time.monotonic() + LEAVE_SECONDS
        for problem, is_over in leftovers.items():
            while not is_over():
                if time.monotonic() > deadline:
                    raise FailedError(problem)
                time.sleep(0.02)


def _lives(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@contextmanager
def listening() -> Iterator[str]:
    """The address of a server over HTTP."""
    command = [*COMMAND, "--http", "--address", "127.0.0.1:0"]
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(command, stderr=errors, text=True) as server:
        try:
            while True:
                errors.seek(0)
                if (found := LISTENING.search(errors.read())) is not None:
                    break
                if server.poll() is not None:
                    raise FailedError("the server did not start")
                time.sleep(0.02)
            yield found[1]
        finally:
            server.terminate()
            server.wait()
        errors.seek(0)
        written = errors.read()
    if "Traceback" in written or "ERROR" in written:
        print(f"the server wrote:\n{written}", file=sys.stderr)


def main() -> int:
    """The exit code: 1 if a client has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mcp.clients", description=__doc__)
    parser.add_argument("--only", action="append", help="this client (may be repeated)")
    parser.add_argument("--environments", type=Path, help="where environments are kept")
    given = parser.parse_args()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as name, listening() as address:
        for client in CLIENTS:
            if given.only and client.name not in given.only:
                continue
            cells: list[str] = []
            for wire in client.wires:
                for mode in client.modes:
                    target = [address] if wire == "http" else COMMAND
                    try:
                        run(client, install(client, given.environments or Path(name)), wire, mode, target)
                    except FailedError as problem:
                        failures.append(f"{client.name}, {wire}, {mode}: {problem}")
                        print(failures[-1], file=sys.stderr)
                        cells.append(f"{wire} {mode}: FAILED")
                    else:
                        cells.append(f"{wire} {mode}")
            print(f"{client.name:18} {', '.join(cells)}", flush=True)
    print("\n".join(["", *failures]) if failures else "every client has passed")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
