"""Compiling graphs: what is refused, all at once; and drawings."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pydantic
import pytest
from typing_extensions import TypedDict

from carmy_engine import App
from carmy_engine.graph import END, CompiledGraph, GraphError, RunStatus, StateGraph, merge_fields


@dataclasses.dataclass
class Count:
    """A dataclass as a state."""

    n: int = 0


class Model(pydantic.BaseModel):
    """A model as a state."""

    n: int = 0


class Struct(msgspec.Struct):
    """A Struct as a state."""

    n: int = 0


class Dictionary(TypedDict):
    """A TypedDict as a state."""

    n: int


class Opaque:
    """No JSON form."""


@dataclasses.dataclass
class Bad:
    """A state with a field without a JSON form."""

    it: Opaque


def step(state: Any) -> None:
    """Do nothing."""


def test_all_problems_at_once() -> None:
    """One error lists every problem of a graph."""

    graph = (
        StateGraph(Bad)
        .node("a", step)
        .node("a", step)
        .node("b b", step)
        .node("c", lambda: None)
        .node("d", step, timeout=0, retries=-1)
        .node("alone", step)
        .node("e", step)
        .edge("a", "missing")
        .edge("c", "d")
        .edge("d", "c")
        .branch("c", lambda state: "x", {"x": "nowhere"})
        .edge("ghost", "a")
        .fan_out("e", ["c"], merge=merge_fields)
    )
    with pytest.raises(GraphError) as raised:
        graph.compile()
    found = "\n".join(raised.value.problems)
    for expected in (
        "a: two nodes have this name",
        "'b b': the name of a node",
        "c: the function <lambda> must take (state) or (state, ctx)",
        "d: timeout must be",
        "d: retries must be",
        "ghost: there is no node 'ghost'",
        "e: a fan_out needs two different targets",
        "state: ",
        "a -> missing: there is no node 'missing'",
        "c -> nowhere (x): there is no node 'nowhere'",
        "c: it has more than one of edge, branch and fan_out",
        "alone: no way leads from a to this node",
        "c -> d -> c: this loop has no limit",
    ):
        assert expected in found
    assert str(raised.value).startswith("graph 'Bad': ")


def test_an_empty_graph_and_a_state_that_is_none() -> None:
    """A graph without nodes, and a state that is no object type, are refused."""
    with pytest.raises(GraphError, match="it has no node"):
        StateGraph(Count).compile()

    @dataclasses.dataclass
    class Local:
        """A state whose types cannot be found."""

        it: Missing  # type: ignore[name-defined] # noqa: F821 - the case

    with pytest.raises(GraphError, match=r"state: .*Local names a type that is not defined"):
        StateGraph(Local).node("a", step).compile()
    with pytest.raises(GraphError, match="state: int is no model"):
        StateGraph(int).node("a", step).compile()


def test_a_loop_needs_a_limit_at_one_node() -> None:
    """A limit at any node of a loop is enough; a loop of one node is one."""
    graph = StateGraph(Count).node("a", step).node("b", step, max_visits=3).edge("a", "b")
    assert graph.branch("b", lambda state: "a", ["a", END]).compile().name == "Count"
    with pytest.raises(GraphError, match="a -> a: this loop has no limit"):
        StateGraph(Count).node("a", step).branch("a", lambda state: "a", ["a", END]).compile()


def test_branches_of_a_fan_out_share_nothing() -> None:
    """A node in two branches is refused: its calls would have the identity of each other."""
    graph = StateGraph(Count).node("a", step).node("b", step).node("c", step).node("d", step).node("e", step)
    graph.fan_out("a", ["b", "c"], merge=merge_fields, then="e").edge("b", "d").edge("c", "d")
    with pytest.raises(GraphError, match="d: it is in two branches of the fan_out of a, b and c"):
        graph.compile()


def test_subgraphs_are_checked_too() -> None:
    """Problems of a subgraph have its path; another state is refused, and so is a graph inside itself."""
    inner = StateGraph(Count, name="inner").node("x", step).edge("x", "y")
    with pytest.raises(GraphError, match="in/x -> in/y: there is no node 'in/y'"):
        StateGraph(Count).node("in", inner).compile()
    with pytest.raises(GraphError, match="in: its state is Model and that of this graph is Count"):
        StateGraph(Count).node("in", StateGraph(Model).node("x", step)).compile()
    own: StateGraph[Count] = StateGraph(Count)
    with pytest.raises(GraphError, match="me: the graph contains itself"):
        own.node("me", own).compile()


def drawn() -> StateGraph[Count]:
    inner = StateGraph(Count).node("x", step).node("y", step).edge("x", "y")
    return (
        StateGraph(Count)
        .node("plan", step, timeout=5, retries=2)
        .node("left", step)
        .node("right", inner)
        .node("check", step, max_visits=3)
        .node("repair", step)
        .fan_out("plan", ["left", "right"], merge=merge_fields, then="check")
        .branch("check", lambda state: "done", {"again": "plan", "done": END})
        .on_error("check", "repair")
    )


def test_drawings() -> None:
    """A graph is drawn as Mermaid and as text, with its subgraphs, limits and error edges."""
    text = drawn().compile().draw("text")
    assert text.splitlines() == [
        "start -> plan",
        "plan -> all: left, all: right, join: check  [timeout=5, retries=2]",
        "left -> check",
        "right -> right/x",
        "right/x -> right/y",
        "right/y -> right/$end",
        "right/$end -> check",
        "check -> again: plan, done: end, error: repair  [max_visits=3]",
        "repair -> end",
    ]
    mermaid = drawn().compile().draw()
    assert mermaid.startswith("flowchart TD\n    start((start)) --> n0\n")
    assert '    n3["right/x"]\n' in mermaid
    assert "    n0 -->|all| n1\n" in mermaid
    assert "    n0 -.->|join| n6\n" in mermaid
    assert "    n6 -.->|error| n7\n" in mermaid
    assert mermaid.endswith("    stop((end))\n")


@pytest.mark.parametrize("kind", [Count, Model, Struct])
async def test_states_of_every_kind(kind: Any) -> None:
    """Dataclasses, models and Structs are states; plain and async nodes return new ones."""

    def plain(state: Any) -> Any:
        return kind(n=state.n + 1)

    async def waiting(state: Any) -> Any:
        return kind(n=state.n * 10)

    graph: CompiledGraph[Any] = StateGraph(kind).node("a", plain).node("b", waiting).edge("a", "b").compile()
    async with App("empty").open() as engine:
        run = await graph.bind(engine).run("t", kind(n=1))
    assert (run.status, run.state) == (RunStatus.COMPLETED, kind(n=20))
    assert type(run.state) is kind


async def test_a_typed_dict_is_a_state() -> None:
    """A TypedDict is a state."""

    def plus(state: Dictionary) -> Dictionary:
        return {"n": state["n"] + 1}

    graph = StateGraph(Dictionary).node("a", plus).compile()
    async with App("empty").open() as engine:
        run = await graph.bind(engine).run("t", {"n": 1})
    assert run.state == {"n": 2}
