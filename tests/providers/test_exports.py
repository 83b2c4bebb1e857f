"""Tools in every provider's format: within its rules, and without losing a value or a word."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from carmy_engine import AgentError, App, DeclarationError, ExecutionResult, ModelResult, ToolRegistry, ToolSpec, tool
from carmy_engine.providers import FORMATS, Provider, provider
from carmy_engine.providers._json_schema_tools import accepts_null, definitions_of, resolved
from carmy_engine.testing import compile_tool
from tests.providers.rules import RULES, json_schema_of_openapi, nodes, openai_strict
from tests.providers.signatures import CASES, STATE

REGISTRY = ToolRegistry().register(*[function for function, _ in CASES.values()])
PROVIDERS: dict[str, Provider] = {name: REGISTRY.provider(name) for name in FORMATS}  # type: ignore[arg-type]
NAMES = {name: spec.name for name, spec in zip(CASES, REGISTRY.specs.values(), strict=True)}

every_format = pytest.mark.parametrize("form", FORMATS)
every_case = pytest.mark.parametrize("case", CASES)


def exported(form: str, case: str) -> dict[str, Any]:
    """One tool in one format, as its function's part."""
    tools = [tool.get("function", tool) for tool in PROVIDERS[form].tools]
    return next(found for found in tools if found["name"] == PROVIDERS[form].name_for(NAMES[case]))


def schema_in(form: str, made: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of the arguments, whatever the format calls it."""
    if form == "gemini":
        if "parameters" in made:
            return json_schema_of_openapi(made["parameters"])
        return made.get("parametersJsonSchema", {"type": "object"})
    return made[{"anthropic": "input_schema", "mcp": "inputSchema"}.get(form, "parameters")]


def test_there_are_forty() -> None:
    """The cases are as many as were promised."""
    assert len(CASES) >= 40


@every_format
def test_every_tool_is_within_the_rules(form: str) -> None:
    """All signatures together keep to the provider's documented rules, and can be written as JSON."""
    tools = PROVIDERS[form].tools
    assert list(RULES[form](tools)) == []
    assert json.loads(json.dumps(tools)) == tools
    assert len(tools) == len(CASES)


def strict_form(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    """What a model in strict mode sends for a value: every field, with null for those left out."""
    schema = resolved(schema, definitions)
    if "anyOf" in schema:
        fits = [arm for arm in schema["anyOf"] if _takes(strict_form(value, arm, definitions), arm, definitions)]
        return strict_form(value, fits[0], definitions) if fits else value
    if isinstance(value, dict) and "properties" in schema:
        return {
            name: strict_form(value.get(name), part, definitions) for name, part in schema["properties"].items()
        } | {name: part for name, part in value.items() if name not in schema["properties"]}
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [strict_form(part, schema["items"], definitions) for part in value]
    return value


def _takes(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> bool:
    return bool(Draft202012Validator({**schema, "$defs": definitions}).is_valid(value))


@every_format
@every_case
def test_a_value_goes_through(form: str, case: str) -> None:
    """A value that the tool takes fits the exported schema, and comes back from a model's call as it was."""
    function, value = CASES[case]
    made = exported(form, case)
    schema = schema_in(form, made)
    sent = strict_form(value, schema, definitions_of(schema)) if made.get("strict") else value
    Draft202012Validator(schema).validate(sent)
    (call,) = PROVIDERS[form].parse(response(form, made["name"], sent))
    assert call.problem is None
    assert (call.tool, call.name) == (NAMES[case], made["name"])
    compiled = compile_tool(function, STATE)
    assert isinstance(call.arguments, msgspec.Raw)
    expected = compiled.parse(json.dumps(value).encode())
    assert repr(compiled.parse(bytes(call.arguments))) == repr(expected)


def response(form: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a model answers that calls one tool."""
    text = json.dumps(arguments)
    responses: dict[str, dict[str, Any]] = {
        "openai": {
            "role": "assistant",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": name, "arguments": text}}],
        },
        "openai-responses": {"output": [{"type": "function_call", "call_id": "1", "name": name, "arguments": text}]},
        "anthropic": {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": name, "input": arguments}],
        },
        "gemini": {"role": "model", "parts": [{"functionCall": {"name": name, "args": arguments}}]},
        "mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}},
    }
    return responses[form]


def told(form: str, rendered: list[dict[str, Any]]) -> Any:
    """The output that a rendered turn of one call tells the model."""
    (message,) = rendered
    if form == "gemini":
        return message["parts"][0]["functionResponse"]["response"]["output"]
    if form == "mcp":
        return json.loads(message["result"]["content"][0]["text"])
    content = message["content"][0] if form == "anthropic" else message
    return json.loads(content["output" if form == "openai-responses" else "content"])


@every_format
@every_case
def test_a_value_comes_back(form: str, case: str) -> None:
    """The same value as a tool's output reaches the model as it was, whatever its shape."""
    value = CASES[case][1]
    (call,) = PROVIDERS[form].parse(response(form, PROVIDERS[form].name_for(NAMES[case]), value))
    result = ExecutionResult(execution_id="exec_1", data_json=json.dumps(value).encode())
    rendered = PROVIDERS[form].render([ModelResult(call=call, result=result)])
    assert told(form, json.loads(json.dumps(rendered))) == value


@every_format
@every_case
def test_no_description_is_lost(form: str, case: str) -> None:
    """Every text of the tool's own schema is in the exported one, whatever was inlined or reworded."""
    spec = REGISTRY.specs[NAMES[case]]
    made = exported(form, case)
    assert made["description"] == spec.description
    text = json.dumps(made)
    shown = {
        part["description"]
        for place, part in nodes(dict(spec.input_schema))
        if "description" in part and place.startswith("/properties")
    }
    assert {one for one in shown if json.dumps(one)[1:-1] not in text} == set()


@every_case
def test_strict_mode_asks_for_every_field(case: str) -> None:
    """In strict mode every field is required, and null stands for those that may be left out."""
    made = exported("openai", case)
    if not made["strict"]:
        assert case in {"dicts", "anything", "any_list", "open_model", "deep", "two_names", "nested_two_names"}
        return
    own = REGISTRY.specs[NAMES[case]].input_schema
    definitions = definitions_of(made["parameters"])
    for name, part in made["parameters"]["properties"].items():
        if name not in own.get("required", ()):
            assert accepts_null(part, definitions), name


def test_only_circles_keep_their_references() -> None:
    """References are followed wherever they end; what leads back to itself keeps one."""
    circular = {"recursive", "recursive_argument", "mutually_recursive"}
    for form in FORMATS:
        for case in CASES:
            assert ("$ref" in json.dumps(exported(form, case))) == (case in circular), (form, case)


def test_beside_a_reference_the_nearer_description_counts() -> None:
    """The description of a field wins over that of its class."""
    properties = exported("openai", "nested")["parameters"]["properties"]
    assert properties["home"]["description"] == "Where letters go."
    assert properties["work"]["anyOf"][0]["description"] == "Where somebody lives."


def test_optional_parameters_have_plain_types_for_gemini() -> None:
    """Null is a type beside the other one, where the format has a word for it."""
    properties = exported("gemini", "optionals")["parameters"]["properties"]
    assert properties["warehouse"] == {"type": "STRING", "nullable": True}
    assert exported("gemini", "optionals")["parameters"]["required"] == ["sku"]


def test_what_a_format_cannot_say_is_told() -> None:
    """Limits and defaults without a keyword are in the description, for the model to read."""
    properties = exported("openai", "constrained")["parameters"]["properties"]
    assert properties["code"]["description"] == "maxLength: 4; minLength: 2"
    assert properties["code"]["pattern"] == "^[A-Z]+$"
    assert properties["even"] == {"type": ["integer", "null"], "multipleOf": 2, "description": "default: 2"}
    assert (
        exported("gemini", "constrained")["parameters"]["properties"]["share"]["description"] == "exclusiveMinimum: 0"
    )


def test_the_neutral_manifest_is_nobodys() -> None:
    """Without a format there are name, description and parameters, and changing them changes nothing."""

    @tool(effect="read", name="inventory.lookup", description="Units in stock for a SKU.", register=False)
    def lookup(sku: str, warehouse: str = "main") -> int:
        return len(sku + warehouse)

    registry = ToolRegistry().register(lookup)
    expected = {
        "name": "inventory.lookup",
        "description": "Units in stock for a SKU.",
        "parameters": {
            "type": "object",
            "properties": {"sku": {"type": "string"}, "warehouse": {"type": "string", "default": "main"}},
            "required": ["sku"],
            "additionalProperties": False,
        },
    }
    manifest = registry.manifest()
    assert manifest == [expected]
    manifest[0]["parameters"]["properties"].clear()
    assert registry.manifest() == [expected]
    assert registry.manifest("mcp")[0]["name"] == "inventory.lookup"


async def test_an_engine_exports_what_its_caller_may_use() -> None:
    """The provider of a view has the tools of its catalog, and no other."""
    async with App("shop").add(REGISTRY.subset("nothing", "scalars", "defaults")).open() as engine:
        view = engine.subset("scalars", "nothing")
        made = view.provider("openai-responses")
        assert [tool["name"] for tool in made.tools] == ["nothing", "scalars"]
        assert made.tools == provider("openai-responses", await view.catalog()).tools


def test_unknown_formats_are_refused() -> None:
    """A format that does not exist is refused, naming those that do."""
    with pytest.raises(DeclarationError, match="there are openai, openai-responses, anthropic, gemini, mcp"):
        REGISTRY.manifest("mistral")  # type: ignore[arg-type]


def test_a_registry_with_a_wrong_tool_has_no_manifest() -> None:
    """What would keep an engine from starting is refused here too."""

    @tool(effect="none", name="no spaces", register=False)
    def wrong() -> None:
        """Nothing."""

    with pytest.raises(AgentError, match="INVALID_TOOL_NAME"):
        ToolRegistry().register(wrong).manifest()


def spec_with(schema: dict[str, Any]) -> ToolSpec:
    return ToolSpec(name="x", description="y", input_schema=schema, output_schema={}, effect="none")  # type: ignore[arg-type]


def doubling(levels: int) -> dict[str, Any]:
    """A schema that grows like powers of two without its references."""
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, levels):
        part = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {
            "type": "object",
            "properties": {"a": part, "b": part},
            "required": ["a", "b"],
            "additionalProperties": False,
        }
    return {"type": "object", "properties": {"x": {"$ref": f"#/$defs/d{levels - 1}"}}, "$defs": definitions}


@every_format
def test_references_stay_where_following_them_would_never_end(form: str) -> None:
    """Definitions that use each other twice at every level are kept, so that an export stays small."""
    made = FORMATS[form]([spec_with(doubling(40))]).tools
    assert len(json.dumps(made)) < 20_000
    assert "$ref" in json.dumps(made)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {"allOf": [{"type": "string"}, {"minLength": 1}]}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]},
        {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"const": None}]}}},
        {"type": "object", "properties": {"a": {"type": ["string", "integer", "null"]}}},
        {"type": "object", "properties": {"a": {"enum": ["x", 1, None]}}},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
        {"type": "object", "properties": {"a": {"$ref": "#/definitions/b"}}, "definitions": {"b": {"type": "string"}}},
        {"type": "object", "properties": {"a-b": {"type": "string", "format": "ipv6", "contentEncoding": "x"}}},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {
            "type": "object",
            "properties": {"a": {"type": "array", "prefixItems": [{"type": "integer"}], "items": False}},
        },
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {}},
    ],
)
@every_format
def test_schemas_written_by_hand_are_exported_too(form: str, schema: dict[str, Any]) -> None:
    """Whatever the schema of a tool made by hand, the export is within the rules."""
    assert list(RULES[form](FORMATS[form]([spec_with(schema)]).tools)) == []


@every_format
def test_one_of_two_names_is_required_in_words(form: str) -> None:
    """Root keywords that providers refuse are in the description: one name of a field must be sent, and neither is required alone."""
    schema = schema_in(form, exported(form, "two_names"))
    assert schema["properties"].keys() == {"orderId", "id", "shipTo", "to"}
    assert "required" not in schema
    if form == "mcp":
        assert schema["allOf"] == [{"anyOf": [{"required": ["orderId"]}, {"required": ["id"]}]}]
    else:
        assert schema["description"] == "one is required: orderId or id"


@pytest.mark.parametrize("form", ["openai", "openai-responses"])
@pytest.mark.parametrize("case", ["two_names", "nested_two_names"])
def test_fields_with_two_names_are_exported_without_strict_mode(form: str, case: str) -> None:
    """Strict mode requires every field, and has no form for a choice of names: sent both, the engine could not choose."""
    assert not exported(form, case)["strict"]


def test_strict_mode_has_limits() -> None:
    """What is deeper or larger than strict mode takes is exported without it."""
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(12):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"]}
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(5_001)}}
    many = {"type": "object", "properties": {"a": {"enum": [f"value {n}" for n in range(1_001)]}}}
    long = {"type": "object", "properties": {"a": {"enum": ["x" * 100 + str(n) for n in range(251)]}}}
    fine = {"type": "object", "properties": {"a": {"enum": [f"value {n}" for n in range(200)]}}}
    strict = [
        FORMATS["openai"]([spec_with(schema)]).tools[0]["function"]["strict"]
        for schema in (deep, wide, many, long, fine)
    ]
    assert strict == [False, False, False, False, True]


def test_the_check_of_strict_mode_finds_faults() -> None:
    """The rules that the exports are held to are not satisfied by anything."""
    wrong = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}, "b": {}}, "required": ["a"]}
    assert len(list(openai_strict(wrong))) == 4


# The libraries of the providers, as far as they are installed: their types are a second opinion.


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    """Their modules warn on import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def validated(expected: Any, values: list[dict[str, Any]]) -> None:
    """Every value is of a type of the provider's library, and nothing of it is unknown there."""
    adapter = TypeAdapter(expected)
    for value in values:
        adapter.validate_python(value)
        assert value.keys() <= expected.__annotations__.keys()


def test_openai_types_take_the_tools() -> None:
    """The types of the ``openai`` library take what is exported for both of its interfaces."""
    shared = pytest.importorskip("openai.types.shared_params")
    chat = pytest.importorskip("openai.types.chat")
    responses = pytest.importorskip("openai.types.responses")
    validated(chat.ChatCompletionFunctionToolParam, PROVIDERS["openai"].tools)
    validated(shared.FunctionDefinition, [tool["function"] for tool in PROVIDERS["openai"].tools])
    validated(responses.FunctionToolParam, PROVIDERS["openai-responses"].tools)


def test_anthropic_types_take_the_tools() -> None:
    """The types of the ``anthropic`` library take what is exported."""
    types = pytest.importorskip("anthropic.types")
    validated(types.ToolParam, PROVIDERS["anthropic"].tools)


def test_google_types_take_the_tools() -> None:
    """The types of the ``google-genai`` library, which allow no unknown fields, take what is exported."""
    types = pytest.importorskip("google.genai.types")
    for made in PROVIDERS["gemini"].tools:
        declaration = types.FunctionDeclaration.model_validate(made)
        assert declaration.name == made["name"]
        if "parameters" in made:
            assert declaration.parameters.type == "OBJECT"


def test_mcp_types_take_the_tools() -> None:
    """The types of the ``mcp`` library take what is exported."""
    types = pytest.importorskip("mcp.types")
    for made in PROVIDERS["mcp"].tools:
        assert types.Tool.model_validate(made).name == made["name"]
