"""The documented files of a deployment, and servers that run with them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import trio

from tests.faults.processes import Server, running

FILES = Path(__file__).parents[2] / "docs" / "examples" / "deployment"
TOKEN = "token-of-the-test"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory with the files, and one for the store in place of /data."""
    directory = tmp_path / "shop"
    shutil.copytree(FILES, directory, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "data").mkdir(mode=0o700)
    return directory


def environment(directory: Path, **changes: str) -> dict[str, str]:
    """That of the container, with free ports and the store of the test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CARMY_", "LISTEN_"))}
    return {
        **kept,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SHOP_TOKEN": TOKEN,
        "CARMY_ADDRESS": "127.0.0.1:0",
        "CARMY_METRICS_ADDRESS": "127.0.0.1:0",
        "CARMY_STORE_URL": f"sqlite:{directory.parent / 'data' / 'shop.db'}",
        **changes,
    }


@asynccontextmanager
async def serving(
    directory: Path, *command: str, said: list[bytes] | None = None, **options: Any
) -> AsyncIterator[Server]:
    """Run a command until the end of the block; collect what it logs in `said`."""
    log = [] if said is None else said
    options.setdefault("env", environment(directory))
    async with running([*command], stderr=PIPE, cwd=directory, **options) as process, trio.open_nursery() as nursery:
        url = await nursery.start(_read, process, log)
        yield Server(process, url)
        nursery.cancel_scope.cancel()


async def _read(process: trio.Process, log: list[bytes], *, task_status: trio.TaskStatus[str]) -> None:
    assert process.stderr is not None
    url: str | None = None
    async for data in process.stderr:
        log.append(bytes(data))
        found = re.search(rb"http listening on (http://[^\s\"]+)", b"".join(log))
        if found is not None and url is None:
            url = found[1].decode()
            task_status.started(url)
    assert url is not None, b"".join(log).decode()
