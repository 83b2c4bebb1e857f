"""The way of one call: the project's files that it passes, and their number."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, cast

import pytest
import trio
import trio.testing

from carmy_engine import App, Engine, ExecutionRequest, HttpSettings, Settings
from carmy_http import serve
from carmy_http.native.leader_follower import Dispatcher

ROOT = Path(__file__).parents[2]
DESIGN = ROOT / "docs" / "design.md"
PART = "<!-- call path: {} -->\n```text\n{}\n```\n"

MAX_FILES = {"in process": 12, "native": 18}
"""A reader opens these files to follow one call from its first byte to its last. Only ever lower these numbers."""

app = App("echo", settings=Settings(address="127.0.0.1:0", http=HttpSettings(server="native")))


@app.tool(effect="none", parallel_safe=True)
async def echo(text: str) -> str:
    """Return the text."""
    return text


@contextmanager
def recorded(root: FunctionType | None = None) -> Iterator[list[str]]:
    """The project's files with a function that runs within the block, in the order of the first call.

    Args:
        root: If given, only what this function calls counts: other tasks run in the block too.
    """
    files: dict[str, None] = {}
    is_inside = root is None
    code = None if root is None else root.__code__

    def record(frame: FrameType, event: str, _: Any) -> None:
        nonlocal is_inside
        if frame.f_code is code:
            is_inside = event == "call" or (event != "return" and is_inside)
        path = Path(frame.f_code.co_filename)
        if event == "call" and is_inside and path.is_relative_to(ROOT):
            name = path.relative_to(ROOT)
            if name.parts[0] in {"carmy_engine", "transports"}:
                files[str(name)] = None

    found: list[str] = []
    sys.setprofile(record)
    try:
        yield found
    finally:
        sys.setprofile(None)
        found.extend(files)


async def in_process(engine: Engine) -> list[str]:
    """The files of the second call, with everything cached that a first call makes."""
    request = ExecutionRequest(tool="echo", arguments={"text": "hello"})
    await engine.execute(request)
    with recorded() as files:
        await engine.execute(request)
    return files


async def native(engine: Engine) -> list[str]:
    """The files of the third call of a connection over HTTP."""
    body = json.dumps({"tool": "echo", "arguments": {"text": "hello"}}).encode()
    head = f"POST /agent/execute HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    data = head.encode() + body
    async with trio.open_nursery() as nursery:
        line: str = await nursery.start(serve, engine)
        stream = await trio.open_tcp_stream("127.0.0.1", int(line.rpartition(":")[2]))
        for _ in range(2):
            await stream.send_all(data)
            await stream.receive_some()
        with recorded(cast("FunctionType", Dispatcher._serve_round)) as files:
            await stream.send_all(data)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
        await stream.aclose()
        nursery.cancel_scope.cancel()
    return files


WAYS: dict[str, Callable[[Engine], Awaitable[list[str]]]] = {"in process": in_process, "native": native}


def files_of(way: str) -> list[str]:
    """The files of one call, at a time that stands still: what the engine does every few milliseconds is not recorded."""

    async def main() -> list[str]:
        async with app.open() as engine:
            return await WAYS[way](engine)

    return trio.run(main, clock=trio.testing.MockClock())


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the dispatcher needs epoll")


@pytest.mark.parametrize("way", WAYS)
def test_a_call_passes_few_files(way: str) -> None:
    """A call passes at most so many files of the project."""
    assert len(files_of(way)) <= MAX_FILES[way]


@pytest.mark.parametrize("way", WAYS)
def test_the_design_lists_the_way_of_a_call(way: str) -> None:
    """``docs/design.md`` lists the files of a call in order; ``python tests/architecture/test_call_path.py`` renews the lists."""
    assert PART.format(way, "\n".join(files_of(way))) in DESIGN.read_text()


if __name__ == "__main__":
    text = DESIGN.read_text()
    for name in WAYS:
        pattern = re.escape(PART.format(name, "@")).replace("@", "[^`]*")
        text = re.sub(pattern, PART.format(name, "\n".join(files_of(name))), text)
    DESIGN.write_text(text)
