"""What a host binds is the same for every call, whatever a tool does with it."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import msgspec
import pydantic_core
import pytest

from carmy_engine import AgentContext, RunContext
from carmy_engine._model.frozen import FrozenDict, FrozenList, freeze
from tests.engine.kit import bench, read

METADATA = {"tenant": "acme", "tags": ["a", {"deep": [1, 2]}], "limits": {"calls": 3}}

CHANGES: list[Callable[[Any], object]] = [
    lambda m: m.__setitem__("tenant", "other"),
    lambda m: m.__delitem__("tenant"),
    lambda m: m.update(tenant="other"),
    lambda m: m.setdefault("more", 1),
    lambda m: m.pop("tenant"),
    lambda m: m.popitem(),
    lambda m: m.clear(),
    lambda m: m.__ior__({"more": 1}),
    lambda m: m["limits"].__setitem__("calls", 1000),
    lambda m: m["tags"].append("b"),
    lambda m: m["tags"].__setitem__(0, "b"),
    lambda m: m["tags"].__iadd__(["b"]),
    lambda m: m["tags"].__imul__(2),
    lambda m: m["tags"].extend("b"),
    lambda m: m["tags"].insert(0, "b"),
    lambda m: m["tags"].remove("a"),
    lambda m: m["tags"].reverse(),
    lambda m: m["tags"].sort(key=str),
    lambda m: m["tags"].clear(),
    lambda m: m["tags"].pop(),
    lambda m: m["tags"].__delitem__(0),
    lambda m: m["tags"][1]["deep"].append(3),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
async def test_a_tool_cannot_change_metadata(number):
    """Every way to write to it raises, at every depth, and later calls see what was bound."""
    seen: list[Any] = []

    @read
    async def meddle(ctx: AgentContext) -> str:
        seen.append(copy.deepcopy(ctx.metadata))
        with pytest.raises(TypeError, match="read-only"):
            CHANGES[number](ctx.metadata)
        return "tried"

    async with bench(meddle) as b:
        caller = b.of(metadata=copy.deepcopy(METADATA))
        for _ in range(2):
            assert (await caller.call("meddle")).data == "tried"
    assert seen == [METADATA, METADATA]


async def test_what_the_host_changes_later_is_not_seen():
    """Metadata is copied where it is bound: by `bind`, in a context, and in a run."""
    given: dict[str, Any] = copy.deepcopy(METADATA)

    @read
    async def tell(ctx: AgentContext) -> dict[str, Any]:
        return dict(ctx.metadata)

    async with bench(tell) as b:
        callers = [
            b.of(metadata=given),
            b.of(context=AgentContext(metadata=given)),
            b.of(run=RunContext(metadata=given)),
        ]
        given["tags"][1]["deep"].append(3)
        given["tenant"] = "other"
        for caller in callers:
            assert (await caller.call("tell")).data == METADATA


async def test_nothing_else_of_a_context_can_be_changed():
    """Permissions, services and the cause of a cancel are read-only as well."""

    @read
    async def meddle(ctx: AgentContext) -> str:
        with pytest.raises(TypeError, match="read-only"):
            ctx.services["more"] = 1  # type: ignore[index]
        with pytest.raises(AttributeError):
            ctx.permissions.add("confirm:destructive")  # type: ignore[attr-defined]
        with pytest.raises(AttributeError):
            ctx.cancellation.cause = None  # type: ignore[misc]
        with pytest.raises(AttributeError):
            ctx.principal = "root"  # type: ignore[misc]
        return "tried"

    async with bench(meddle) as b:
        services = {"transaction": object()}
        assert (await b.of(run=RunContext(services=services)).call("meddle")).data == "tried"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@hypothesis.given(JSON)
def test_a_read_only_copy_is_like_the_value(value):
    """It compares equal, is written as the same JSON by every encoder, and its copies can be changed again."""
    frozen = freeze(value)
    assert frozen == value
    assert json.dumps(frozen) == json.dumps(value)
    assert msgspec.json.encode(frozen) == msgspec.json.encode(value)
    assert pydantic_core.to_json(frozen) == pydantic_core.to_json(value)
    for made in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert made == value
        assert type(made) is type(value)
    assert freeze(frozen) is frozen or not isinstance(value, dict | list)


def test_other_containers_become_read_only_ones():
    """Mappings, tuples, sets and bytearrays have a read-only form too."""
    frozen = freeze({"t": ([1],), "s": {1}, "b": bytearray(b"x"), "m": FrozenDict({"k": [1]})})
    assert frozen == {"t": ([1],), "s": {1}, "b": b"x", "m": {"k": [1]}}
    assert type(frozen["t"][0]) is FrozenList
    assert (type(frozen["s"]), type(frozen["b"])) == (frozenset, bytes)


def test_what_contains_itself_is_refused():
    """Metadata without an end is refused where it is made."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="contains itself"):
        AgentContext(metadata={"endless": endless})
