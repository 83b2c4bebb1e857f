"""A process that forks others and lets them die in a run: ``python -m tests.graph.victim``.

It reads one `Orders` per line, forks a child that starts or resumes the run, and writes one `Report` per line.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import trio

from carmy_engine import AgentContext, App, Completed, NotStarted, Settlement, tool
from carmy_engine.graph import CompiledGraph, NodeContext, RunResult, StateGraph, merge_fields

THREAD = "order-1"


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a child has to do.

    Attributes:
        directory: Of the store and of the file with the effects.
        die_at: The step of the event loop at which it is killed, counted from the start of the run; None to live.
        reconciles: The tools can find out what has happened.
        repeatable: The tools are idempotent.
    """

    directory: str
    die_at: int | None = None
    reconciles: bool = True
    repeatable: bool = False


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a child has done.

    Attributes:
        died: It was killed.
        steps: Of the event loop.
        status: Of the run.
        state: At the end.
        doubts: Node, tool and execution of each doubt.
    """

    died: bool = False
    steps: int = 0
    status: str = ""
    state: dict[str, Any] = {}
    doubts: list[tuple[str, str, str | None]] = []


@dataclasses.dataclass(frozen=True)
class Order:
    """The state."""

    sku: str = "AB-12"
    reserved: str = ""
    charged: str = ""
    approved_by: str = ""
    shipped: str = ""
    log: tuple[str, ...] = ()


class Effects:
    """Tools that add a line to a file: the effects that outlive a process."""

    def __init__(self, orders: Orders) -> None:
        self.path = Path(orders.directory, "effects")
        self._orders = orders

    def tools(self) -> list[Any]:
        async def reconcile(ctx: AgentContext, arguments: dict[str, Any]) -> Settlement:
            word = arguments["word"]
            return Completed(f"did {word}") if word in self.lines() else NotStarted()

        def write(name: str) -> Any:
            attributes: dict[str, Any] = {"reconcile": reconcile} if self._orders.reconciles else {}

            @tool(effect="write", name=name, register=False, idempotent=self._orders.repeatable, **attributes)
            async def effect(word: str) -> str:
                """Add a line, with an await on both sides."""
                await trio.lowlevel.checkpoint()
                if not (self._orders.repeatable and word in self.lines()):
                    with self.path.open("a") as file:
                        file.write(f"{word}\n")
                await trio.lowlevel.checkpoint()
                return f"did {word}"

            return effect

        return [write(name) for name in ("reserve", "charge", "ship")]

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


def graph_of(tools: list[Any]) -> CompiledGraph[Order]:
    """Five nodes: a fan-out of two writes, a question, and a write."""
    reserve, charge, ship = tools

    async def plan(state: Order) -> Order:
        return dataclasses.replace(state, log=(*state.log, "planned"))

    async def reserving(state: Order, ctx: NodeContext) -> Order:
        return dataclasses.replace(state, reserved=await ctx.call(reserve, word="reserve"))

    async def charging(state: Order, ctx: NodeContext) -> Order:
        return dataclasses.replace(state, charged=await ctx.call(charge, word="charge"))

    async def approving(state: Order, ctx: NodeContext) -> Order:
        return dataclasses.replace(state, approved_by=await ctx.interrupt({"ship": state.sku}))

    async def shipping(state: Order, ctx: NodeContext) -> Order:
        first = await ctx.call(ship, word="ship")
        second = await ctx.call(ship, word="label")
        return dataclasses.replace(state, shipped=f"{first}, {second}")

    return (
        StateGraph(Order, name="orders")
        .node("plan", plan)
        .node("reserve", reserving)
        .node("charge", charging)
        .node("approve", approving)
        .node("ship", shipping)
        .fan_out("plan", ["reserve", "charge"], merge=merge_fields, then="approve")
        .edge("approve", "ship")
        .compile()
    )


class Killer(trio.abc.Instrument):
    """Kills this process at a step of its event loop."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step."""
        self.steps += 1
        if self.steps == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


async def follow(orders: Orders) -> Report:
    """Start the run, or resume it; answer its question."""
    tools = Effects(orders).tools()
    app = App("shop").add(*tools).store(f"sqlite:{orders.directory}/state.db")
    killer = Killer(orders.die_at)
    async with app.open() as engine:
        bound = graph_of(tools).bind(engine)
        trio.lowlevel.add_instrument(killer)
        run: RunResult[Order]
        if await bound.history(THREAD, limit=1):
            run = await bound.resume(THREAD)
        else:
            run = await bound.run(THREAD, Order(), metadata={"tenant": "acme"})
        if run.questions:
            run = await bound.resume(THREAD, answer="ana")
        steps = killer.steps
    return Report(
        steps=steps,
        status=run.status.value,
        state=dataclasses.asdict(run.state),
        doubts=[(each.node, each.tool, each.execution_id) for each in run.doubts],
    )


def child(orders: Orders) -> Report:
    """Follow the orders in a child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            os.write(write, msgspec.json.encode(trio.run(follow, orders)))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return Report(died=True)
    return msgspec.json.decode(data, type=Report)


def main() -> None:
    """Follow one order after another."""
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(child(msgspec.json.decode(line, type=Orders))) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
