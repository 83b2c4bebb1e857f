"""The application that the clients call."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import trio

from carmy_engine import App

app = App("clients")


@app.tool(effect="read", parallel_safe=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool(effect="write", parallel_safe=True)
async def hold(folder: str) -> str:
    """Start a child process, and run until cancelled; then end it."""
    child = subprocess.Popen(["sleep", "1000"])  # noqa: ASYNC220 - takes a moment
    try:
        started = Path(folder, "starting")
        started.write_text(f"{os.getpid()} {child.pid}")
        started.rename(Path(folder, "started"))
        await trio.sleep_forever()
    finally:
        child.kill()
        child.wait()
        Path(folder, "finally").touch()
    return ""
