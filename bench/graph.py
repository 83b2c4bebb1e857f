"""What a graph adds for each node, beside LangGraph on the same graph: ten async nodes in a row, checkpoints in memory.

Both run in one process, in short interleaved rounds; the best quarter of the rounds counts. Needs ``langgraph`` (group ``bench``).
"""

from __future__ import annotations

import asyncio
import statistics
import time

import trio
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END as STOP
from langgraph.graph import START
from langgraph.graph import StateGraph as LangGraph
from typing_extensions import TypedDict

from carmy_engine import App
from carmy_engine.graph import MemoryCheckpoints, StateGraph

NODES = 10
RUNS = 20
ROUNDS = 20
TARGET = 0.2


class State(TypedDict):
    """The state of both."""

    count: int
    text: str


async def step(state: State) -> State:
    """Count."""
    return {"count": state["count"] + 1, "text": state["text"]}


def names() -> list[str]:
    return [f"node{number}" for number in range(NODES)]


async def ours() -> float:
    """Seconds for each node."""
    graph = StateGraph(State, name="bench")
    for name in names():
        graph.node(name, step)
    for source, target in zip(names(), names()[1:], strict=False):
        graph.edge(source, target)
    async with App("bench").open() as engine:
        bound = graph.compile().bind(engine, checkpoints=MemoryCheckpoints())
        began = time.process_time()
        for number in range(RUNS):
            run = await bound.run(f"thread-{number}", {"count": 0, "text": "hello"})
            assert run.state["count"] == NODES
        return (time.process_time() - began) / RUNS / NODES


async def theirs() -> float:
    """Seconds for each node."""
    builder = LangGraph(State)
    for name in names():
        builder.add_node(name, step)
    for source, target in zip([START, *names()], [*names(), STOP], strict=True):
        builder.add_edge(source, target)
    graph = builder.compile(checkpointer=InMemorySaver())
    began = time.process_time()
    for number in range(RUNS):
        state = await graph.ainvoke({"count": 0, "text": "hello"}, {"configurable": {"thread_id": f"thread-{number}"}})
        assert state["count"] == NODES
    return (time.process_time() - began) / RUNS / NODES


def main() -> None:
    """Print both, and the ratio."""
    found: dict[str, list[float]] = {"carmy": [], "langgraph": []}
    for _ in range(ROUNDS):
        found["carmy"].append(trio.run(ours))
        found["langgraph"].append(asyncio.run(theirs()))
    best = {name: statistics.median(sorted(values)[: ROUNDS // 4]) for name, values in found.items()}
    for name, seconds in best.items():
        print(f"{name:10} {seconds * 1e6:8.1f} us for each node")
    ratio = best["carmy"] / best["langgraph"]
    print(f"ratio      {ratio:8.2f} (at most {TARGET})")


if __name__ == "__main__":
    main()
