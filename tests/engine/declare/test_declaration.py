"""What ``@tool`` accepts, what it refuses, and in which words."""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from carmy_engine import AgentContext, Arg, Confirmation, Effect, State, tool
from carmy_engine._tools.declaration import ToolDeclaration, declaration_of, declared
from carmy_engine.errors import AgentError, DeclarationError
from carmy_engine.testing import compile_tool


class Database:
    pass


class Postgres(Database):
    pass


class Order(BaseModel):
    sku: str


class Customer(BaseModel):
    name: str


def refusal(declare: Callable[[], Any]) -> str:
    with pytest.raises(DeclarationError) as caught:
        declare()
    message = str(caught.value)
    # Every refusal names the function and its place.
    assert re.search(r"test_declaration\.py:\d+\)", message), message
    assert message.startswith("tool ")
    return message


def test_the_decorator_returns_the_same_function() -> None:
    """A declared function can be called and tested as it is."""

    def add(a: int, b: int = 2) -> int:
        return a + b

    decorated = tool(effect="none", register=False)(add)
    assert decorated is add
    assert decorated(1) == 3


def test_defaults_of_the_attributes() -> None:
    """Unset attributes have the documented defaults."""

    @tool(effect="read", register=False)
    def look() -> str:
        """Look around."""
        return ""

    spec = compile_tool(look, {}).spec
    assert spec.name == "look"
    assert spec.description == "Look around."
    assert spec.effect is Effect.READ
    assert (spec.idempotent, spec.parallel_safe) == (False, False)
    assert spec.confirmation is Confirmation.NONE
    assert spec.timeout is None
    assert spec.max_waiting == 100
    assert spec.max_output_bytes == 8 * 1024 * 1024


def test_attributes_are_kept() -> None:
    """Every attribute reaches the spec."""

    @tool(
        effect=Effect.EXTERNAL_WRITE,
        description="Send it",
        name="mail.send",
        idempotent=True,
        parallel_safe=True,
        confirmation="required",
        timeout=2,
        max_waiting=0,
        max_output_bytes=10,
        register=False,
    )
    def send() -> None:
        """Not this."""

    spec = compile_tool(send, {}).spec
    assert (spec.name, spec.description, spec.effect) == ("mail.send", "Send it", Effect.EXTERNAL_WRITE)
    assert (spec.idempotent, spec.parallel_safe, spec.needs_confirmation) == (True, True, True)
    assert (spec.timeout, spec.max_waiting, spec.max_output_bytes) == (2, 0, 10)


def test_registration_is_automatic_unless_declined() -> None:
    """``register=False`` keeps a tool out of the conventional application."""

    @tool(effect="none")
    def kept() -> None: ...

    @tool(effect="none", register=False)
    def left_out() -> None: ...

    functions = [declaration.function for declaration in declared()]
    assert kept in functions
    assert left_out not in functions


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({}, "needs an effect. Write @tool(effect=...) with one of: 'none', 'read', 'write'"),
        ({"effect": "red"}, "effect='red' is unknown. Write one of: 'none', 'read'"),
        ({"effect": "read", "idempotant": True}, "no attribute 'idempotant'. Did you mean 'idempotent'?"),
        ({"effect": "read", "zzz": 1}, "no attribute 'zzz'. The attributes are: effect"),
        ({"effect": "read", "confirmation": "maybe"}, "confirmation='maybe' is unknown"),
        ({"effect": "read", "idempotent": 1}, "idempotent=1 is neither True nor False"),
        ({"effect": "read", "timeout": 0}, "timeout=0 is not a positive number of seconds"),
        ({"effect": "read", "timeout": float("inf")}, "timeout=inf is not a positive number of seconds"),
        ({"effect": "read", "timeout": "3"}, "timeout='3' is not a positive number of seconds"),
        ({"effect": "read", "max_waiting": -1}, "max_waiting=-1 is not a whole number from 0"),
        ({"effect": "read", "max_output_bytes": 0}, "max_output_bytes=0 is not a whole number from 1"),
        ({"effect": "read", "name": 3}, "name=3 is not a text"),
    ],
)
def test_wrong_attributes_are_refused(attributes: dict[str, Any], words: str) -> None:
    """A wrong attribute is refused at decoration, naming what would be right."""

    def f() -> None: ...

    assert words in refusal(lambda: tool(**attributes, register=False)(f))


def test_a_bare_decorator_is_refused() -> None:
    """``@tool`` without parentheses states that an effect is needed."""

    def f() -> None: ...

    assert "needs an effect" in refusal(lambda: tool(f))  # type: ignore[arg-type, call-arg]


def no_return(a: int): ...


def no_annotation(a) -> None: ...


def method(self) -> None: ...


def star(*values: int) -> None: ...


def keywords(**values: int) -> None: ...


def positional(a: int, /) -> None: ...


def two_contexts(a: AgentContext, b: AgentContext) -> None: ...


def two_objects(order: Order, customer: Customer) -> None: ...


def no_schema(callback: Callable[[], None]) -> None: ...


def no_such_pattern(word: Annotated[str, Field(pattern="^(?!a)")]) -> None: ...


def no_json_class(db: Database) -> None: ...


def no_output_schema() -> Database: ...


def hidden_context(contexts: list[AgentContext]) -> None: ...


def hidden_state(db: list[State[Database]]) -> None: ...


def state_of_two(db: State[Database | None]) -> None: ...


def default_input(order: Order = Order(sku="a")) -> None: ...  # noqa: B008


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_return, "no return annotation"),
        (no_annotation, "parameter 'a' has no annotation. Annotate it, such as 'a: str'"),
        (method, "it is a method: no call could pass 'self'. Write a function"),
        (star, "Take a list: 'values: list[str]'"),
        (keywords, "'**values'"),
        (positional, "'a' is positional-only"),
        (two_contexts, "'a' and 'b' both ask for the AgentContext"),
        (two_objects, "Combine them into one model, or mark each with Annotated[T, Arg()]"),
        (no_schema, "JSON cannot carry functions"),
        (no_such_pattern, "a type has no schema: look-around"),
        (no_json_class, "Database has no JSON form"),
        (no_output_schema, "Database has no JSON form"),
        (hidden_context, "AgentContext is part of another type"),
        (hidden_state, "State is part of another type"),
        (state_of_two, "which is not one type"),
        (default_input, "its default would never be used"),
        (generator, "it is a generator"),
        (async_generator, "it is a generator"),
        (Database, "it is not a function"),
    ],
)
def test_functions_that_cannot_be_tools(function: Callable[..., Any], words: str) -> None:
    """A signature that cannot work is refused at decoration, with what to write instead."""
    with pytest.raises(DeclarationError) as caught:
        tool(effect="none", register=False)(function)
    assert words in str(caught.value)
    assert function.__name__ in str(caught.value)


def test_parameters_in_any_order() -> None:
    """Context and state are recognised by annotation, wherever they stand."""

    @tool(effect="none", register=False)
    async def work(a: int, ctx: AgentContext, db: State[Database], b: str = "x", *, c: bool = False) -> None: ...

    database = Database()
    compiled = compile_tool(work, {Database: database})
    assert compiled.context_parameter == "ctx"
    assert compiled.is_async
    assert compiled.parse(b'{"a":1}') == {"a": 1, "b": "x", "c": False, "db": database}
    assert list(compiled.spec.input_schema["properties"]) == ["a", "b", "c"]


def test_injected_names_cannot_be_sent() -> None:
    """A caller that sends an injected name is refused, and the name is not published."""

    @tool(effect="none", register=False)
    async def work(ctx: AgentContext, db: State[Database]) -> None: ...

    compiled = compile_tool(work, {Database: Database()})
    assert compiled.spec.input_schema["properties"] == {}
    for name in ("ctx", "db", "state", "context", "principal"):
        with pytest.raises(AgentError, match=f"argument '{name}' is not known; there are no arguments"):
            compiled.parse(b'{"%s":null}' % name.encode())


def test_an_optional_context_is_still_the_context() -> None:
    """``ctx: AgentContext | None = None`` is injected; a caller could otherwise forge one."""

    @tool(effect="none", register=False)
    def work(ctx: AgentContext | None = None) -> None: ...

    assert compile_tool(work, {}).context_parameter == "ctx"


def test_one_object_is_the_input() -> None:
    """The fields of the only parameter of an object type are the arguments."""

    @tool(effect="none", register=False)
    def place(ctx: AgentContext, order: Order) -> None: ...

    compiled = compile_tool(place, {})
    assert list(compiled.spec.input_schema["properties"]) == ["sku"]
    assert compiled.parse(b'{"sku":"a"}') == {"order": Order(sku="a")}


def test_an_object_beside_others_is_an_argument() -> None:
    """With another parameter beside it, an object is one argument."""

    @tool(effect="none", register=False)
    def place(order: Order, dry_run: bool = False) -> None: ...

    assert compile_tool(place, {}).parse(b'{"order":{"sku":"a"}}') == {"order": Order(sku="a"), "dry_run": False}


def test_marked_objects_are_arguments() -> None:
    """``Arg()`` makes an object one argument of its own name."""

    @tool(effect="none", register=False)
    def place(order: Annotated[Order, Arg()], customer: Annotated[Customer, Arg()]) -> None: ...

    compiled = compile_tool(place, {})
    assert list(compiled.spec.input_schema["properties"]) == ["order", "customer"]


def test_state_is_keyed_by_exact_type() -> None:
    """A subclass registered under its own type does not satisfy its base; registered as the base it does."""

    @tool(effect="none", register=False)
    def work(db: State[Database]) -> None: ...

    postgres = Postgres()
    with pytest.raises(AgentError) as caught:
        compile_tool(work, {Postgres: postgres})
    assert caught.value.code == "MISSING_STATE"
    assert "tool 'work'" in caught.value.message
    assert "State[Database]" in caught.value.message
    assert compile_tool(work, {Database: postgres}).parse(b"{}") == {"db": postgres}


@pytest.mark.parametrize("name", ["", "a b", "ä", "a" * 129, "a/b"])
def test_bad_names_are_refused_at_start(name: str) -> None:
    """A name outside 1-128 of A-Z a-z 0-9 _ - . is INVALID_TOOL_NAME."""

    def f() -> None: ...

    with pytest.raises(AgentError) as caught:
        compile_tool(tool(effect="none", name=name, register=False)(f), {})
    assert caught.value.code == "INVALID_TOOL_NAME"


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


def plainly_traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("decorator", [traced, plainly_traced])
async def test_wrapped_functions_keep_their_signature(decorator: Callable[[Any], Any]) -> None:
    """A decorator that uses functools.wraps hides neither parameters nor texts, and it is what runs."""

    @tool(effect="none", register=False)
    @decorator
    async def add(a: int, b: Annotated[int, "the second"] = 2) -> int:
        """Add.

        Args:
            a: The first.
        """
        return a + b

    compiled = compile_tool(add, {})
    assert compiled.is_async
    assert compiled.spec.description == "Add."
    properties = compiled.spec.input_schema["properties"]
    assert (properties["a"]["description"], properties["b"]["description"]) == ("The first.", "the second")
    assert await compiled.function(**compiled.parse(b'{"a":1}')) == 3


def test_a_decorator_above_tool_is_what_runs() -> None:
    """What an application is given is what it calls, even when it wraps a declared function."""

    @plainly_traced
    @tool(effect="none", register=False)
    def add(a: int) -> int:
        return a

    declaration = declaration_of(add)
    assert isinstance(declaration, ToolDeclaration)
    assert declaration.function is add


def test_annotations_may_name_local_classes() -> None:
    """String annotations see the local variables around the function."""

    class Local(BaseModel):
        a: int

    def inner() -> Any:
        @tool(effect="none", register=False)
        def work(first: Local, second: int) -> list[Local]: ...

        return work

    assert compile_tool(inner(), {}).parse(b'{"first":{"a":1},"second":2}') == {"first": Local(a=1), "second": 2}


@tool(effect="none", register=False)
def early(input: Later) -> Later:  # noqa: A002
    return input


class Later(BaseModel):
    a: int


def test_annotations_may_name_what_comes_later() -> None:
    """A class defined further down in the module is found at start."""
    assert compile_tool(early, {}).parse(b'{"a":1}') == {"input": Later(a=1)}


def test_names_that_never_come_are_reported_at_start() -> None:
    """A name that does not exist at run time is INVALID_SCHEMA, naming it."""

    @tool(effect="none", register=False)
    def work(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(AgentError) as caught:
        compile_tool(work, {})
    assert caught.value.code == "INVALID_SCHEMA"
    assert "'Missing'" in caught.value.message
    assert "TYPE_CHECKING" in caught.value.message


@pytest.mark.parametrize("candidate", [3, "search", object()])
def test_other_objects_are_no_tools(candidate: object) -> None:
    """What is no tool at all is refused, saying what a tool is."""
    with pytest.raises(DeclarationError, match=r"@tool\(effect=...\)"):
        declaration_of(candidate)


def test_an_undeclared_function_is_no_tool() -> None:
    """A function that was never declared is refused with its place."""

    def f() -> None: ...

    assert "not declared as a tool" in refusal(lambda: declaration_of(f))
