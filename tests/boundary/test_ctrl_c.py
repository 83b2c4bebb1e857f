"""A Ctrl-C is nobody's escape: it ends the program, whatever runs when it comes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest
import trio

import carmy_http
import carmy_websocket
from carmy_engine import App, ExecutionRequest, HttpSettings, Settings
from carmy_engine.transport import flatten_exceptions
from tests.support.http import Client
from tests.support.websocket import Peer

LIMIT = 10.0
"""Seconds, for what takes a fraction of one."""


def app_of(front_end: Literal["native", "hypercorn"] = "native") -> App:
    app = App("interrupted", settings=Settings(address="127.0.0.1:0", http=HttpSettings(server=front_end)))

    @app.tool(effect="read", parallel_safe=True)
    async def interrupt(*, waits: bool) -> str:
        """Stands for a person who presses the keys while the tool computes."""
        if waits:
            await trio.lowlevel.checkpoint()
        signal.raise_signal(signal.SIGINT)
        return "not reached"

    return app


async def in_process(*, waits: bool) -> None:
    async with app_of().open() as engine:
        await engine.execute(ExecutionRequest(tool="interrupt", arguments={"waits": waits}))


async def over_http(front_end: Literal["native", "hypercorn"], *, waits: bool) -> None:
    async with app_of(front_end).open() as engine, trio.open_nursery() as nursery:
        line: str = await nursery.start(partial(carmy_http.serve, engine))
        async with await trio.open_tcp_stream("127.0.0.1", int(line.rpartition(":")[2])) as stream:
            await Client(stream).call("interrupt", arguments={"waits": waits})


async def over_websocket(*, waits: bool) -> None:
    async with app_of().open() as engine, trio.open_nursery() as nursery:
        line: str = await nursery.start(partial(carmy_websocket.serve, engine))
        port = int(line.rpartition(":")[2].partition("/")[0])
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            peer = Peer(stream)
            await peer.upgrade()
            await peer.told()
            await peer.ask(id=1, op="call", tool="interrupt", arguments={"waits": waits})


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    "program",
    [in_process, partial(over_http, "native"), partial(over_http, "hypercorn"), over_websocket],
    ids=["in_process", "native", "hypercorn", "websocket"],
)
def test_a_ctrl_c_during_a_call_ends_the_program(program: Callable[..., object], *, waits: bool) -> None:
    """The ``KeyboardInterrupt`` of trio's signal handler leaves `trio.run`, alone or in groups of nurseries."""

    async def main() -> None:
        with trio.fail_after(LIMIT):
            await program(waits=waits)  # type: ignore[misc] # one of the above

    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)) as caught:
        trio.run(main)
    # Beside it there may be what a client says whose server has gone.
    assert any(type(error) is KeyboardInterrupt for error in flatten_exceptions(caught.value))
