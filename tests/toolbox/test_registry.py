"""Registries: what can be registered, in which order, and how they are narrowed."""

from __future__ import annotations

from typing import Any

import pytest

import carmy_engine
from carmy_engine import AgentContext, AgentError, App, DeclarationError, ExecutionRequest, State, ToolRegistry, tool
from carmy_engine._tools.declaration import declared
from carmy_engine.testing import compile_tool
from tests.toolbox.inventory import InventoryTools, refund, search


def warehouse() -> ToolRegistry:
    return ToolRegistry().register(search, InventoryTools({"AB-12": 7}), ToolRegistry().register(refund))


def test_functions_objects_and_registries_can_be_registered() -> None:
    """One registry takes functions, objects with tools as methods, and other registries, and keeps their order."""
    assert list(warehouse()) == ["search", "inventory.lookup", "inventory.reserve", "billing.refund"]
    assert len(warehouse()) == 4
    assert "billing.refund" in warehouse()
    assert "refund" not in warehouse()


async def test_methods_are_called_on_their_object() -> None:
    """A method, async or not, runs on the object that was registered, and `self` is no argument."""
    stock = {"AB-12": 7}
    async with App("shop").add(InventoryTools(stock)).open() as engine:
        found = await engine.execute(ExecutionRequest(tool="inventory.lookup", arguments={"sku": "AB-12"}))
        assert found.unwrap() == 7
        bound = engine.bind(metadata={"tenant": "acme"})
        arguments = {"sku": "AB-12", "count": 2}
        done = await bound.execute(ExecutionRequest(tool="inventory.reserve", arguments=arguments))
        assert done.unwrap() == "reserved 2 x AB-12 for acme"
        forged = await engine.execute(ExecutionRequest(tool="inventory.lookup", arguments={"sku": "AB-12", "self": 1}))
    assert stock == {"AB-12": 5}
    assert forged.error is not None
    assert forged.error.message.startswith("argument 'self' is not known")


def test_methods_do_not_register_themselves() -> None:
    """The conventional application adds functions by itself, and methods never: it has no object for them."""

    class Provider:
        @tool(effect="none")
        def method_without_object(self) -> None:
            """Nothing."""

    assert "method_without_object" not in [declaration.name for declaration in declared()]
    assert list(ToolRegistry().register(Provider())) == ["method_without_object"]


def test_an_undecorated_method_stays_callable() -> None:
    """A decorated method is called as before, with its object."""
    assert InventoryTools({"AB-12": 7}).lookup("AB-12") == 7


class Base:
    """A provider with one method of each kind."""

    @tool(effect="none")
    def first(self) -> str:
        return "base"

    @tool(effect="none")
    def second(self) -> str:
        return self.word()

    @staticmethod
    @tool(effect="none", register=False)
    def third(text: str) -> str:
        return text.upper()

    @classmethod
    @tool(effect="none")
    async def fourth(cls) -> str:
        return cls.__name__

    @property
    def expensive(self) -> str:
        raise AssertionError("nobody asked for it")

    def word(self) -> str:
        return "base"


async def outputs(provider: object, **arguments: dict[str, Any]) -> dict[str, Any]:
    """What each tool of a provider returns."""
    async with App("shop").add(provider).open() as engine:
        return {
            name: (await engine.execute(ExecutionRequest(tool=name, arguments=arguments.get(name)))).unwrap()
            for name in ToolRegistry().register(provider)
        }


async def test_inherited_methods_are_tools() -> None:
    """Tools of base classes come first; what they call on themselves is the subclass's own; properties stay untouched."""

    class Derived(Base):
        @tool(effect="none")
        def fifth(self) -> int:
            return 5

        def word(self) -> str:
            return "derived"

    assert await outputs(Derived(), third={"text": "a"}) == {
        "first": "base",
        "second": "derived",
        "third": "A",
        "fourth": "Derived",
        "fifth": 5,
    }


async def test_an_overridden_tool_needs_its_own_declaration() -> None:
    """A tool that a subclass replaces is declared again, or left out in so many words; it never vanishes by itself."""

    class Silent(Base):
        def first(self) -> str:
            return "derived"

    class Declared(Base):
        @tool(effect="none")
        def first(self) -> str:
            return "derived"

    class Without(Base):
        first = None  # type: ignore[assignment]

    with pytest.raises(DeclarationError, match=r"Silent.first replaces a tool of Base. Decorate it"):
        ToolRegistry().register(Silent())
    assert (await outputs(Declared(), third={"text": "a"}))["first"] == "derived"
    assert list(ToolRegistry().register(Without())) == ["second", "third", "fourth"]


async def test_methods_take_state_and_forward_references() -> None:
    """Methods are tools like any other: state and context are injected, and names may be defined later."""

    class Provider:
        @tool(effect="none")
        async def later(self, db: State[dict], ctx: AgentContext, wanted: Later) -> Later:  # type: ignore[name-defined]
            return Later(word=wanted.word + db["suffix"] + str(ctx.principal))

    provider = Provider()
    from pydantic import BaseModel

    class Later(BaseModel):
        word: str

    Provider.later.__globals__["Later"] = Later
    try:
        async with App("shop").add(provider).state({"suffix": "!"}).open() as engine:
            result = await engine.bind(principal="ana").execute(
                ExecutionRequest(tool="later", arguments={"word": "hi"})
            )
        assert result.unwrap() == {"word": "hi!ana"}
    finally:
        del Provider.later.__globals__["Later"]


def test_a_duplicate_is_refused_and_nothing_is_added() -> None:
    """Nothing of a registration stays when one of its names is taken; the error names both places."""
    tools = ToolRegistry().register(search)

    @tool(effect="none", register=False)
    def other() -> None:
        """Nothing."""

    with pytest.raises(AgentError) as caught:
        tools.register(other, InventoryTools({}), search)
    assert caught.value.code == "DUPLICATE_TOOL"
    assert caught.value.message.count("inventory.py:") == 2
    assert list(tools) == ["search"]
    with pytest.raises(AgentError, match="DUPLICATE_TOOL"):
        ToolRegistry().register(InventoryTools({}), InventoryTools({}))


def test_an_application_reports_duplicates_of_providers() -> None:
    """Names that clash between what was added are found when the application is checked."""
    problems = App("shop").add(warehouse()).add(search).check()
    assert [problem.code for problem in problems if isinstance(problem, AgentError)] == ["DUPLICATE_TOOL"]


class Nothing:
    """No tools."""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (InventoryTools, r"InventoryTools is a class, and its tools are methods. Register an object of it"),
        (InventoryTools.lookup, r"it is a method, and the engine has no object to call it on. Pass the object"),
        (Nothing(), r"Nothing object is not a tool"),
        (print, r"it is not declared as a tool"),
        ("search", r"str object is not a tool"),
    ],
)
def test_what_has_no_tools_is_refused(wrong: object, said: str) -> None:
    """A registry and an application refuse what is no tool and has none, and say what to pass."""
    with pytest.raises(DeclarationError, match=said):
        ToolRegistry().register(wrong)
    with pytest.raises(DeclarationError, match=said):
        App("shop").add(wrong)


def test_an_application_refuses_to_declare_a_method() -> None:
    """`app.tool` inside a class is refused at once: there is no object."""
    app = App("shop")
    with pytest.raises(DeclarationError, match="it is a method"):

        class Provider:
            @app.tool(effect="none")
            def method(self) -> None:
                """Nothing."""


def test_one_method_can_be_added_alone() -> None:
    """The method of an object is a tool by itself."""
    assert list(ToolRegistry().register(InventoryTools({}).lookup)) == ["inventory.lookup"]


def test_the_arguments_of_a_method_are_described() -> None:
    """The schema of a method has its parameters, and nothing of its object."""

    class Provider:
        @tool(effect="none")
        def look(self, sku: str, warehouse: str | None = None) -> int:
            """Look.

            Args:
                sku: What to look for.
            """
            return len(sku)

    schema = compile_tool(Provider().look, {}).spec.input_schema
    assert list(schema["properties"]) == ["sku", "warehouse"]
    assert schema["properties"]["sku"]["description"] == "What to look for."
    assert schema["required"] == ["sku"]


def test_a_subset_keeps_the_order_of_its_registry() -> None:
    """Whatever order the names come in, a subset has the order of registration."""
    assert list(warehouse().subset("inventory.reserve", "search")) == ["search", "inventory.reserve"]


def test_a_subset_refuses_unknown_names() -> None:
    """A name that the registry does not have is refused when the subset is made."""
    with pytest.raises(
        DeclarationError, match=r"there is no tool 'inventory.lokup' here; did you mean 'inventory.lookup'"
    ):
        warehouse().subset("inventory.lokup")
    with pytest.raises(DeclarationError, match="there are none at all"):
        ToolRegistry().subset("x")


def test_a_subset_can_only_narrow() -> None:
    """A subset of a subset has no more than it, nothing can be registered with one, and it does not grow later."""
    tools = warehouse()
    support = tools.subset("inventory.lookup", "inventory.reserve")
    with pytest.raises(DeclarationError, match=r"leaves 'billing\.refund' out"):
        support.subset("billing.refund")
    with pytest.raises(DeclarationError, match="a subset can only narrow"):
        support.register(refund)
    narrower = support.subset("inventory.lookup")
    assert narrower.withheld == {"search", "inventory.reserve", "billing.refund"}

    @tool(effect="none", register=False)
    def later() -> None:
        """Nothing."""

    tools.register(later)
    assert list(support) == ["inventory.lookup", "inventory.reserve"]
    assert tools.withheld == frozenset()


async def code(engine: carmy_engine.abc.Executor, name: str) -> str:
    result = await engine.execute(ExecutionRequest(tool=name))
    assert result.error is not None
    return result.error.code


async def test_left_out_is_not_permitted_and_unknown_is_not_found() -> None:
    """An application with a subset distinguishes what the subset leaves out and unknown tools; so does an engine's view."""
    async with App("shop").add(warehouse().subset("inventory.lookup", "inventory.reserve")).open() as engine:
        assert await code(engine, "billing.refund") == "TOOL_NOT_PERMITTED"
        assert await code(engine, "inventory.restock") == "TOOL_NOT_FOUND"
        assert [spec.name for spec in (await engine.catalog()).tools] == ["inventory.lookup", "inventory.reserve"]
    async with App("shop").add(warehouse()).open() as engine:
        support = engine.subset(*warehouse().subset("inventory.lookup"))
        assert await code(support, "billing.refund") == "TOOL_NOT_PERMITTED"
        assert await code(support, "inventory.restock") == "TOOL_NOT_FOUND"


async def test_a_tool_added_after_all_is_not_withheld() -> None:
    """What one registry leaves out and another brings in can be called."""
    app = App("shop").add(warehouse().subset("search")).add(refund)
    async with app.open() as engine:
        result = await engine.execute(ExecutionRequest(tool="billing.refund", arguments={"order": "A1"}))
        assert result.unwrap() == "refunded A1"


def test_specs_need_no_state() -> None:
    """The properties of tools are known before there is any state."""

    @tool(effect="read", register=False)
    def rows(db: State[dict], table: str) -> int:
        """Count."""
        return len(db[table])

    specs = ToolRegistry().register(rows, refund).specs
    assert list(specs) == ["rows", "billing.refund"]
    assert list(specs["rows"].input_schema["properties"]) == ["table"]
