"""Tools made by hand: an object with a spec and an execute, checked against its own schemas."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from carmy_engine import AgentContext, Effect, ToolSpec, schema_of, tool
from carmy_engine._model.compiled_tool import TakesLong
from carmy_engine._schema.messages import MAX_PROBLEMS
from carmy_engine._schema.work import Abandoned, Work
from carmy_engine._tools.declaration import declaration_of
from carmy_engine._tools.tool_objects import MAX_CONTAINERS
from carmy_engine.errors import AgentError, DeclarationError
from carmy_engine.testing import CompiledTool, compile_tool

INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 2},
        "limit": {"type": "integer", "minimum": 1},
        "kind": {"enum": ["a", 1]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    },
    "required": ["query"],
    "additionalProperties": False,
    "$defs": {"line": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}}},
}


class Made:
    def __init__(self, **fields: Any) -> None:
        given: dict[str, Any] = {
            "name": "made",
            "description": "Made by hand",
            "input_schema": INPUT,
            "output_schema": {"type": "array", "items": {"type": "number"}},
            "effect": Effect.NONE,
        }
        self.spec = ToolSpec(**{**given, **fields})

    async def execute(self, ctx: AgentContext, input: Any) -> Any:  # noqa: A002
        return [input]


async def test_a_made_tool_runs() -> None:
    """The tool gets its context and the decoded arguments by name."""
    compiled = compile_tool(Made(), {})
    assert compiled.is_async
    assert compiled.context_parameter == "ctx"
    arguments = compiled.parse(b'{"query":"ab","lines":[{"sku":"a"}]}')
    assert arguments == {"input": {"query": "ab", "lines": [{"sku": "a"}]}}
    assert await compiled.function(ctx=AgentContext(), **arguments) == [arguments["input"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "argument 'query' is missing"),
        ("null", "argument 'query' is missing"),
        ("[]", "the arguments must be a JSON object"),
        ('{"query":"a"}', "argument 'query' must have at least 2 characters"),
        ('{"query":1}', "argument 'query' must be a string"),
        ('{"query":"ab","limt":1}', "argument 'limt' is not known; did you mean 'limit'?"),
        ('{"query":"ab","limit":true}', "argument 'limit' must be an integer"),
        ('{"query":"ab","limit":0}', "argument 'limit' must be at least 1"),
        ('{"query":"ab","kind":"b"}', "argument 'kind' must be one of 'a', 1"),
        ('{"query":"ab","kind":true}', "argument 'kind' must be one of 'a', 1"),
        ('{"query":"ab","lines":[{}]}', "argument 'lines[0].sku' is missing"),
        ('{"query":"ab","either":[]}', "argument 'either' fits none of its forms"),
    ],
)
def test_arguments_are_checked_in_the_same_words(text: str, words: str) -> None:
    """The words of a made tool's refusals are those of declared ones."""
    with pytest.raises(AgentError) as caught:
        compile_tool(Made(), {}).parse(text.encode())
    assert caught.value.code == "INVALID_ARGUMENTS"
    assert caught.value.message == words


def test_arguments_at_the_limit_of_nesting_are_checked() -> None:
    """Arguments of as many levels as a request may have are taken, and their innermost part is checked."""
    schema = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/list"}},
        "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}},
    }
    compiled = compile_tool(Made(input_schema=schema), {})
    assert compiled.parse(b'{"x":' + b"[" * 127 + b"]" * 127 + b"}")
    with pytest.raises(AgentError) as caught:
        compiled.parse(b'{"x":' + b"[" * 126 + b"3" + b"]" * 126 + b"}")
    assert caught.value.code == "INVALID_ARGUMENTS"
    assert caught.value.info.message.endswith("[0]' must be a list")


@pytest.mark.parametrize(
    ("schema", "text", "words"),
    [
        ({"patternProperties": {"^x-": {}}, "additionalProperties": False}, '{"x-a":1}', None),
        (
            {"properties": {"limit": {}}, "patternProperties": {"^x-": {}}, "additionalProperties": False},
            '{"x-a":1,"limt":2}',
            "argument 'limt' is not known; did you mean 'limit'?",
        ),
        ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, '{"a":1}', None),
        (
            {"allOf": [{"properties": {"limit": {}}}], "unevaluatedProperties": False},
            '{"limt":1}',
            "argument 'limt' is not known; did you mean 'limit'?",
        ),
        ({"dependentRequired": {"a": ["b"]}}, '{"a":1}', "argument 'b' is missing"),
        ({"properties": {"a": False}}, '{"a":1}', "argument 'a' is not allowed"),
        ({"properties": {"a": {"not": {"type": "null"}}}}, '{"a":null}', "argument 'a' has a form that is not allowed"),
        ({"propertyNames": {"maxLength": 3}}, '{"long":1}', "the name 'long' in the arguments is not allowed"),
        ({"properties": {"a": {"uniqueItems": True}}}, '{"a":[1,1.0]}', "argument 'a' must not have two equal items"),
        ({"properties": {"a": {"minItems": 1}}}, '{"a":[]}', "argument 'a' must have at least 1 item"),
        ({"properties": {"a": {"oneOf": [{}, {}]}}}, '{"a":1}', "argument 'a' fits more than one of its forms"),
        ({"properties": {"a": {"multipleOf": 0.5}}}, '{"a":1' + "0" * 400 + "}", None),
        (
            {"properties": {"a": {"contains": {"type": "null"}, "minContains": 2}}},
            '{"a":[null]}',
            "argument 'a' must have at least 2 items of the form that it must contain",
        ),
    ],
)
def test_every_keyword_has_its_words(schema: dict[str, Any], text: str, words: str | None) -> None:
    """What a keyword refuses is named in words, and what it allows passes."""
    parse = compile_tool(Made(input_schema={"type": "object", **schema}), {}).parse
    if words is None:
        assert parse(text.encode())
        return
    with pytest.raises(AgentError) as caught:
        parse(text.encode())
    assert caught.value.info.message == words


def parsed(compiled: CompiledTool, data: bytes) -> dict[str, Any]:
    """The arguments of a call, however long."""
    try:
        return compiled.parse(data)
    except TakesLong as long:
        return long.check(Work())


def test_long_arguments_are_checked_in_a_thread() -> None:
    """Many values in long arguments take long, also for a named type; a long text does not."""
    compiled = compile_tool(TakesOrder(input_schema=schema_of(Order), output_schema={}), {})
    assert compiled.parse(b'{"lines":[],"note":"' + b"x" * 100_000 + b'"}')
    lines = b'{"sku":"a","count":3.0},' * 5_000
    text = b'{"lines":[' + lines[:-1] + b"]}"
    with pytest.raises(TakesLong) as taken:
        compiled.parse(text)
    assert taken.value.check(Work())["input"].lines == [Line(sku="a", count=3)] * 5_000
    with pytest.raises(AgentError, match="must be a string"):
        parsed(compiled, text.replace(b'"a"', b"1"))


def test_a_check_ends_when_its_call_is_gone() -> None:
    """The check of arguments that are of no use any more ends at its next step."""
    schema = {"type": "object", "properties": {"x": {"items": {"not": {"not": {"type": "null"}}}}}}
    with pytest.raises(TakesLong) as taken:
        compile_tool(Made(input_schema=schema), {}).parse(b'{"x":[' + b"null," * 10_000 + b"null]}")
    work = Work()
    work.abandoned = True
    with pytest.raises(Abandoned):
        taken.value.check(work)


def test_arguments_have_a_limit_of_lists_and_objects() -> None:
    """More lists and objects than the limit are refused before they are decoded; brackets in texts do not count."""
    compiled = compile_tool(Made(input_schema={"type": "object"}), {})
    assert parsed(compiled, b'{"x":"' + b"[{" * MAX_CONTAINERS + b'","y":[' + b"[]," * (MAX_CONTAINERS - 3) + b"[]]}")
    with pytest.raises(AgentError, match="at most 250,000 lists and objects") as caught:
        parsed(compiled, b'{"y":[' + b"[]," * MAX_CONTAINERS + b"[]]}")
    assert caught.value.code == "INVALID_ARGUMENTS"


def test_problems_stop_at_their_limit() -> None:
    """A list of wrong items is looked through until the limit of problems, in the order of the list."""
    schema = {"type": "object", "properties": {"x": {"items": {"anyOf": [{"type": "null"}, {"type": "integer"}]}}}}
    with pytest.raises(AgentError) as caught:
        parsed(compile_tool(Made(input_schema=schema), {}), b'{"x":[' + b'"",' * 5_000 + b'""]}')
    assert caught.value.details is not None
    paths = [problem["path"] for problem in caught.value.details["problems"]]
    assert paths == [f"x[{place}]" for place in range(MAX_PROBLEMS)]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("a", "the output must be a list"),
        ([1, "a"], "'[1]' in the output must be a number"),
        ([float("nan")], "'[0]' in the output must be a finite number"),
        ([object()], "'[0]' in the output is of type object"),
    ],
)
def test_outputs_are_checked(value: Any, words: str) -> None:
    """A result that breaks the output schema is INVALID_OUTPUT."""
    with pytest.raises(AgentError) as caught:
        compile_tool(Made(), {}).render(value)
    assert caught.value.code == "INVALID_OUTPUT"
    assert words in caught.value.message


def test_outputs_are_rendered_and_limited() -> None:
    """A right result becomes JSON, within the tool's limit of bytes."""
    compiled = compile_tool(Made(max_output_bytes=9), {})
    assert json.loads(compiled.render((1, 2.5))) == [1, 2.5]
    with pytest.raises(AgentError) as caught:
        compiled.render([1111111111])
    assert caught.value.code == "OUTPUT_TOO_LARGE"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input_schema": {"type": "array"}}, "input_schema: its root must have 'type': 'object'"),
        ({"input_schema": {}}, "input_schema: its root must have 'type': 'object'"),
        ({"input_schema": {"type": "object", "properties": 3}}, "input_schema: it is not JSON Schema"),
        ({"output_schema": {"type": "number or so"}}, "output_schema: it is not JSON Schema"),
        ({"output_schema": {"$ref": "#/$defs/none"}}, "'#/$defs/none' does not point into the schema itself"),
        ({"output_schema": {"$ref": "http://127.0.0.1:9/x"}}, "does not point into the schema itself"),
        ({"output_schema": {"const": object()}}, "output_schema: it is not JSON"),
    ],
)
def test_unusable_schemas(fields: dict[str, Any], words: str) -> None:
    """A schema that cannot be compiled is INVALID_SCHEMA; a reference is never fetched."""
    with pytest.raises(AgentError) as caught:
        compile_tool(Made(**fields), {})
    assert caught.value.code == "INVALID_SCHEMA"
    assert words in caught.value.message
    assert "'made'" in caught.value.message


def test_a_bad_name() -> None:
    """A made tool's name follows the same rule."""
    with pytest.raises(AgentError) as caught:
        compile_tool(Made(name="a b"), {})
    assert caught.value.code == "INVALID_TOOL_NAME"


def test_the_class_is_not_the_tool() -> None:
    """Passing the class instead of an object is refused."""
    with pytest.raises(DeclarationError):
        compile_tool(Made, {})


def test_a_spec_in_plain_words() -> None:
    """Words are understood in place of enums; wrong ones are refused with the field."""
    assert compile_tool(Made(effect="read"), {}).spec.effect is Effect.READ
    with pytest.raises(DeclarationError, match=r"the spec of a Made object is wrong: .*effect"):
        compile_tool(Made(effect="red"), {})


def test_a_spec_of_another_type() -> None:
    """A spec that is no ToolSpec is refused."""
    made = Made()
    made.spec = {"name": "made"}  # type: ignore[assignment]
    with pytest.raises(DeclarationError, match="is no ToolSpec"):
        compile_tool(made, {})


class Line(pydantic.BaseModel):
    """One line."""

    sku: str
    count: int = 1


@dataclasses.dataclass
class Order:
    lines: list[Line]
    note: str | None = None


class Struct(msgspec.Struct):
    count: int


class Typed(TypedDict):
    count: int


class TakesOrder(Made):
    async def execute(self, ctx: AgentContext, input: Order) -> Any:  # type: ignore[override]  # noqa: A002
        return input


def test_a_made_tool_gets_a_value_of_the_type_it_names() -> None:
    """An execute whose input is annotated with an object type gets a value of it: 3.0 for an int is 3."""
    compiled = compile_tool(TakesOrder(input_schema=schema_of(Order), output_schema={}), {})
    value = compiled.parse(b'{"lines":[{"sku":"a","count":3.0}]}')["input"]
    assert value == Order([Line(sku="a", count=3)])
    assert type(value.lines[0].count) is int
    with pytest.raises(AgentError, match=r"argument 'lines\[0\]\.sku' must be a string"):
        compiled.parse(b'{"lines":[{"sku":1}]}')
    assert json.loads(compiled.render(value)) == {"lines": [{"sku": "a", "count": 3}], "note": None}


def test_a_type_that_is_stricter_than_the_schema_decides() -> None:
    """What the schema lets pass and the type does not take is INVALID_ARGUMENTS."""
    compiled = compile_tool(TakesOrder(input_schema={"type": "object"}), {})
    with pytest.raises(AgentError, match="argument 'lines' is missing"):
        compiled.parse(b"{}")


@pytest.mark.parametrize("cls", [Line, Order, Struct, Typed])
def test_every_kind_of_object_type_can_be_named(cls: Any) -> None:
    """Models, dataclasses, Structs and TypedDicts can be named, also in quotation marks."""
    for annotation in (cls, cls.__name__):

        async def execute(self: Any, ctx: AgentContext, input: Any) -> Any:  # noqa: A002
            return None

        execute.__annotations__["input"] = annotation
        made = type("Named", (Made,), {"execute": execute})(input_schema=schema_of(cls))
        text = b'{"lines":[]}' if cls is Order else b'{"sku":"a"}' if cls is Line else b'{"count":1.0}'
        value = compile_tool(made, {}).parse(text)["input"]
        assert type(value) is (dict if cls is Typed else cls)


def test_a_named_type_that_does_not_exist_is_an_invalid_schema() -> None:
    """A type that is imported for type checkers alone is reported at start."""
    made = TakesOrder()
    execute: Any = lambda self, ctx, input: None  # noqa: E731, A006
    execute.__annotations__ = {"input": "Nowhere"}
    type(made).execute, kept = execute, type(made).execute  # type: ignore[method-assign]
    try:
        with pytest.raises(AgentError, match="'Nowhere' does not exist at run time") as caught:
            compile_tool(made, {})
    finally:
        type(made).execute = kept  # type: ignore[method-assign]
    assert caught.value.code == "INVALID_SCHEMA"


@pytest.mark.parametrize(
    "annotation", [Line, Order, Struct, Typed, int, str | None, list[Line], dict[str, int], tuple[int, str], Any]
)
def test_schema_of_is_what_a_tool_publishes(annotation: Any) -> None:
    """The schema of a type is that of a declared tool's input or argument, and of its output."""

    async def one(value: annotation) -> annotation:  # type: ignore[valid-type]
        return value

    spec = compile_tool(tool(effect="none", register=False)(one), {}).spec
    assert schema_of(annotation, output=True) == spec.output_schema
    published = schema_of(annotation)
    if annotation in (Line, Order, Struct, Typed):
        assert published == spec.input_schema
    else:
        inner = {key: value for key, value in published.items() if key not in ("$schema", "$defs")}
        assert inner == spec.input_schema["properties"]["value"]
        assert published.get("$defs") == spec.input_schema.get("$defs")


def test_schema_of_refuses_what_has_no_json_form() -> None:
    """A type without a schema is refused, with what to write instead."""
    with pytest.raises(DeclarationError, match="schema_of: "):
        schema_of(Callable[[], int])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"timeout": -1.0}, "timeout=-1.0 is not a positive number of seconds"),
        ({"timeout": float("inf")}, "timeout=inf is not a positive number of seconds"),
        ({"timeout": float("nan")}, "timeout=nan is not a positive number of seconds"),
        ({"max_waiting": -1}, "max_waiting=-1 is not a whole number from 0"),
        ({"max_output_bytes": 0}, "max_output_bytes=0 is not a whole number from 1"),
    ],
)
def test_limits_out_of_range_are_refused_where_the_tool_is_given(fields: dict[str, Any], words: str) -> None:
    """The limits of a spec have the ranges that @tool checks."""
    with pytest.raises(DeclarationError, match=words):
        declaration_of(Made(**fields))


def test_methods_that_cannot_be_called_are_refused_where_the_tool_is_given() -> None:
    """An execute or a reconcile with other parameters, or a reconcile that is not async, is a DeclarationError."""

    class OtherNames(Made):
        async def execute(self, context: AgentContext, arguments: Any) -> Any:  # type: ignore[override]
            return arguments

    class NotAsync(Made):
        def reconcile(self, ctx: AgentContext, arguments: Any) -> None: ...

    class OtherParameters(Made):
        async def reconcile(self, ctx: AgentContext) -> None: ...

    for made, words in (
        (OtherNames(), r"execute of a .*OtherNames object cannot be called with \(ctx=..., input=...\)"),
        (NotAsync(), "reconcile of a .*NotAsync object is not an async function"),
        (OtherParameters(), r"reconcile of a .*OtherParameters object cannot be called with \(ctx, arguments\)"),
    ):
        with pytest.raises(DeclarationError, match=words):
            declaration_of(made)


@tool(effect="none", description="\ud800", register=False)
def _with_surrogate() -> None: ...


@pytest.mark.parametrize(
    "made",
    [
        Made(description="\ud800"),
        Made(input_schema={"type": "object", "properties": {"\ud800": {}}}),
        Made(output_schema={"description": "\ud800"}),
        _with_surrogate,
    ],
)
def test_lone_surrogates_in_a_spec_are_refused(made) -> None:
    """A spec that no listing could hold is INVALID_SCHEMA at start."""
    with pytest.raises(AgentError) as caught:
        compile_tool(made, {})
    assert caught.value.code == "INVALID_SCHEMA"
    assert "lone surrogate" in caught.value.message
