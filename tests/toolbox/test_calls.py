"""Typed calls in process: the function's own arguments and results, through everything that the engine does."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import msgspec
import pytest
import trio
from pydantic import BaseModel, Field

from carmy_engine import INJECTED, AgentContext, AgentError, App, DeclarationError, State, tool
from tests.toolbox.inventory import InventoryTools, search


class Product(BaseModel):
    sku: str
    added: dt.date = Field(alias="addedOn")


class Database:
    """Some state."""

    rows = ("a", "b", "c")


@tool(effect="read", register=False)
async def products(sku: str, since: dt.date) -> list[Product]:
    """Find products."""
    return [Product(sku=sku, addedOn=since)]


@tool(effect="read", register=False)
async def loose(sku: str) -> list[Product]:
    """Return something that has the shape of a product."""
    return [{"sku": sku, "addedOn": dt.date(2024, 2, 29)}]  # type: ignore[list-item]


@tool(effect="read", register=False)
def first_rows(ctx: AgentContext, count: int, db: State[Database] = INJECTED) -> tuple[str, ...]:
    """Read rows."""
    assert ctx.transport == "in_process"
    return db.rows[:count]


@dataclasses.dataclass
class Order:
    sku: str
    count: int = 1


class Ticket(msgspec.Struct):
    text: str


class OrderModel(BaseModel):
    sku: str
    count: int = Field(1, ge=1)


@tool(effect="write", register=False)
async def order(wanted: Order) -> Order:
    """Place an order."""
    return dataclasses.replace(wanted, count=wanted.count + 1)


@tool(effect="write", register=False)
async def order_model(wanted: OrderModel) -> OrderModel:
    """Place an order."""
    return wanted


@tool(effect="write", register=False)
async def report(wanted: Ticket) -> Ticket:
    """Report something."""
    return Ticket(text=wanted.text.upper())


@tool(effect="none", register=False)
async def anything(value: Any) -> Any:
    """Give it back."""
    return value


APP = App("shop").add(products, loose, first_rows, order, order_model, report, anything, search)
APP.state(Database()).add(InventoryTools({"AB-12": 7}))


async def test_a_call_takes_and_gives_the_types_of_the_function() -> None:
    """Arguments are Python values of the function's types, by name or by position; so is the result."""
    async with APP.open() as engine:
        day = dt.date(2024, 2, 29)
        expected = [Product(sku="AB-12", addedOn=day)]
        assert await engine.call(products, sku="AB-12", since=day) == expected
        assert await engine.call(products, "AB-12", day) == expected
        assert await engine.call(products, "AB-12", since=day) == expected


async def test_injected_parameters_are_left_out() -> None:
    """Context and state are filled in wherever they stand, and positions count without them."""
    async with APP.open() as engine:
        assert await engine.call(first_rows, count=2) == ("a", "b")
        assert await engine.call(first_rows, 2) == ("a", "b")
        with pytest.raises(AgentError, match="argument 'db' is not known"):
            await engine.call(first_rows, count=2, db="mine")  # type: ignore[call-overload]


async def test_the_function_stays_callable() -> None:
    """A decorated function is called directly as ever, with what the engine would have injected."""
    assert first_rows(AgentContext(), 1, Database()) == ("a",)
    assert await search("mouse", 1) == ["mouse 0"]
    with pytest.raises(TypeError, match=r"the engine passes this argument"):
        first_rows(AgentContext(), 1)
    assert repr(INJECTED) == "INJECTED"


async def test_a_result_has_the_promised_type() -> None:
    """A dict that stands for a model arrives as the model that the function promises."""
    async with APP.open() as engine:
        assert await engine.call(loose, "AB-12") == [Product(sku="AB-12", addedOn=dt.date(2024, 2, 29))]


async def test_a_result_is_what_the_tool_returned() -> None:
    """The very object, not a copy of its JSON."""
    value = [1, 2]
    kept: list[object] = []

    @tool(effect="none", register=False)
    async def own() -> list[int]:
        """Give away the same list."""
        kept.append(value)
        return value

    async with App("own").add(own).open() as engine:
        assert await engine.call(own) is value


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (order, Order("AB-12"), Order("AB-12", 2)),
        (order_model, OrderModel(sku="AB-12", count=3), OrderModel(sku="AB-12", count=3)),
        (report, Ticket("a"), Ticket("A")),
        (order, {"sku": "AB-12", "count": 4}, Order("AB-12", 5)),
    ],
)
async def test_a_whole_input_is_passed_as_such(function: Any, given: object, expected: object) -> None:
    """What takes one model, dataclass or Struct is called with one."""
    async with APP.open() as engine:
        assert await engine.call(function, given) == expected
        assert await engine.call(function, wanted=given) == expected


async def test_methods_are_called_through_their_object() -> None:
    """The method of the object that the engine has is called; that of another object is refused."""
    inventory = InventoryTools({"AB-12": 7})
    async with App("shop").add(inventory).open() as engine:
        assert await engine.call(inventory.lookup, "AB-12") == 7
        with pytest.raises(DeclarationError, match=r"the tool 'inventory.lookup' of this engine is another one"):
            await engine.call(InventoryTools({}).lookup, "AB-12")


async def test_errors_are_raised_as_they_are() -> None:
    """Wrong arguments, unknown tools and the tool's own error are raised as `AgentError`."""
    inventory = InventoryTools({"AB-12": 7})
    async with App("shop").add(inventory).open() as engine:
        with pytest.raises(AgentError, match="argument 'count' is missing") as wrong:
            await engine.call(inventory.reserve, sku="AB-12")  # type: ignore[call-overload]
        assert wrong.value.code == "INVALID_ARGUMENTS"
        with pytest.raises(AgentError, match="only 7 x AB-12 in stock") as failed:
            await engine.call(inventory.reserve, sku="AB-12", count=9)  # type: ignore[call-overload]
        assert failed.value.code == "OUT_OF_STOCK"
        assert isinstance(failed.value.__cause__, AgentError)
        with pytest.raises(AgentError) as unknown:
            await engine.call(search, query="a")
        assert unknown.value.code == "TOOL_NOT_FOUND"
        with pytest.raises(AgentError) as withheld:
            await engine.subset("inventory.lookup").call(inventory.reserve, sku="a", count=1)  # type: ignore[call-overload]
        assert withheld.value.code == "TOOL_NOT_PERMITTED"


async def test_calls_that_no_function_takes_are_type_errors() -> None:
    """Too many positions, or one argument twice, is the mistake it would be with any function."""
    async with APP.open() as engine:
        with pytest.raises(TypeError, match="search takes 2 positional arguments, and 3 were given"):
            await engine.call(search, "a", 1, 2)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="search got two values for query"):
            await engine.call(search, "a", query="b")  # type: ignore[misc]


async def test_what_is_no_function_is_refused() -> None:
    """Only functions and methods have arguments to be called with."""

    async with APP.open() as engine:
        with pytest.raises(DeclarationError, match="it is not declared as a tool"):
            await engine.call(print)


async def test_a_cancelled_call_is_cancelled() -> None:
    """The caller's own scope cuts a call off as it would any function."""

    @tool(effect="none", register=False)
    async def forever() -> None:
        """Wait."""
        await trio.sleep_forever()

    async with App("slow").add(forever).open() as engine:
        with trio.move_on_after(0) as scope:
            await engine.call(forever)
        assert scope.cancelled_caught


async def test_a_call_leaves_its_value_nowhere() -> None:
    """The engine remembers the answer of a call, and does not keep alive what the tool returned."""
    import gc
    import weakref

    class Held(BaseModel):
        word: str

    @tool(effect="none", register=False)
    async def hold() -> Held:
        """Make one."""
        return Held(word="a")

    async with App("held").add(hold).open() as engine:
        there = weakref.ref(await engine.call(hold))
        gc.collect()
        assert there() is None
