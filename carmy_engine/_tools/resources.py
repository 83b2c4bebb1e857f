"""``@app.resource`` and ``@app.prompt``: functions that are declared as tools are, and read instead of called."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypedDict

import msgspec

from .._model.client_features import messages_of
from .._model.compiled_tool import CompiledTool, TakesLong
from .._model.content import KINDS, Content, File, ResourceLink, Text, text_for
from .._model.errors import AgentError, DeclarationError
from .._model.resources import Message, PromptSpec, ReadResult, ResourceContents, ResourceSpec
from .._model.type_guards import is_dict, is_list, is_tuple
from .._schema.annotations import UnusableType, split_annotated
from .._schema.messages import Problem
from .declaration import ToolDeclaration, compile_tool, declare
from .output import OutputRenderer, invalid_output, output_renderer, too_large
from .signature import SignaturePlan, refuse
from .tool_objects import schema_of
from .uri_template import TemplateError, UriTemplate

RESOURCE_PREFIX = "resource:"
PROMPT_PREFIX = "prompt:"
"""What comes before the names of resources and prompts where tools have names: in policies, subsets and records."""

Complete: TypeAlias = Callable[[str, str, Mapping[str, str]], Iterable[str] | Awaitable[Iterable[str]]]
"""``complete(argument, value, given)``: the values of an argument that begin with `value`; `given` has the other arguments."""

_URI = "carmy_uri"
"""The keyword by which the address reaches the function; no parameter of a person has it."""


class ReadAttributes(TypedDict, total=False):
    """The keyword arguments of ``@app.resource`` and ``@app.prompt``.

    Attributes:
        name: 1-128 ASCII letters, digits, ``_``, ``-``, ``.``. Default: the function's name.
        title: Its name for people.
        description: What it is. Default: the docstring without its ``Args:`` section.
        completion: Values for arguments; see `Complete`. Choices (``Literal``, ``Enum``) need none.
        timeout: Seconds. Default: the engine's.
        parallel_safe: False means that reads take turns. Default: True.
        max_output_bytes: Limit of the rendered output.
    """

    name: str | None
    title: str | None
    description: str | None
    completion: Complete | None
    timeout: float | None
    parallel_safe: bool
    max_output_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadDeclaration:
    """A declared resource, or a prompt.

    Attributes:
        tool: The function, as a tool.
        complete: Values for arguments.
        template: Of a resource; None for a prompt.
        mime_type: Of a resource.
    """

    tool: ToolDeclaration
    complete: Complete | None
    template: UriTemplate | None = None
    mime_type: str | None = None

    @property
    def name(self) -> str:
        """The name where tools have names."""
        return (PROMPT_PREFIX if self.template is None else RESOURCE_PREFIX) + self.tool.name


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompiledResource:
    """A resource, or a template of resources.

    Attributes:
        spec: As callers see it.
        template: Its address.
        tool: Reads it: the one argument is ``uri``. Its name begins with `RESOURCE_PREFIX`.
        complete: Values for variables.
    """

    spec: ResourceSpec
    template: UriTemplate
    tool: CompiledTool
    complete: Complete | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPrompt:
    """A prompt.

    Attributes:
        spec: As callers see it.
        tool: Renders it. Its name begins with `PROMPT_PREFIX`.
        complete: Values for arguments.
    """

    spec: PromptSpec
    tool: CompiledTool
    complete: Complete | None = None


def declare_resource(
    function: Callable[..., Any], uri: str, mime_type: str | None, attributes: ReadAttributes, *, depth: int
) -> ReadDeclaration:
    """Check a function that reads a resource.

    Raises:
        DeclarationError: The function, or the address, cannot be used.
    """
    try:
        template = UriTemplate(uri)
    except TemplateError as problem:
        raise refuse(
            function, f"{uri!r} is no URI of a resource: {problem}", "Write one such as 'orders://{id}'."
        ) from None
    output = functools.partial(_resource_output, mime_type)
    tool = declare(function, _tool_attributes(attributes), depth=depth + 1, make_output=output)
    if tool.parts is not None and (wrong := _wrong_variables(template, tool.parts[0].schema)) is not None:
        raise refuse(function, *wrong)
    return ReadDeclaration(tool=tool, complete=attributes.get("completion"), template=template, mime_type=mime_type)


def declare_prompt(function: Callable[..., Any], attributes: ReadAttributes, *, depth: int) -> ReadDeclaration:
    """Check a function that renders a prompt.

    Raises:
        DeclarationError: The function cannot be used.
    """
    tool = declare(function, _tool_attributes(attributes), depth=depth + 1, make_output=_prompt_output)
    return ReadDeclaration(tool=tool, complete=attributes.get("completion"))


def _tool_attributes(attributes: ReadAttributes) -> dict[str, Any]:
    unknown = attributes.keys() - ReadAttributes.__annotations__.keys()
    if unknown:
        known = ", ".join(ReadAttributes.__annotations__)
        raise DeclarationError(f"there is no attribute {', '.join(sorted(unknown))}; the attributes are {known}")
    given = {key: value for key, value in attributes.items() if key != "completion"}
    return {"parallel_safe": True, **given, "effect": "read", "register": False}


def _wrong_variables(template: UriTemplate, schema: Mapping[str, Any]) -> tuple[str, str] | None:
    """What does not fit between the variables and the parameters, and what to write instead."""
    arguments, required = schema["properties"].keys(), set(schema.get("required", ()))
    if missing := [name for name in template.names if name not in arguments]:
        return (
            f"no parameter takes the variable {', '.join(missing)} of {template.text!r}",
            "Add it, or remove it there.",
        )
    if unset := [name for name in arguments if name not in template.names]:
        return f"{template.text!r} has no variable for the parameter {', '.join(unset)}", "Add it to the address."
    if needed := [name for name in template.optional if name in required]:
        return f"the query may leave {', '.join(needed)} out", "Give the parameter a default."
    return None


def compile_resource(
    found: ReadDeclaration, state: Mapping[Any, object], max_output_bytes: int | None
) -> CompiledResource:
    """See `compile_tool`.

    Raises:
        AgentError: ``INVALID_TOOL_NAME``, ``INVALID_SCHEMA`` or ``MISSING_STATE``.
    """
    tool = compile_tool(found.tool, state, max_output_bytes)
    template = found.template
    assert template is not None
    schema = tool.spec.input_schema
    if (wrong := _wrong_variables(template, schema)) is not None:
        message = f"resource {found.tool.name!r} ({found.tool.location}): {wrong[0]}. {wrong[1]}"
        raise AgentError.standard("INVALID_SCHEMA", message, details={"tool": found.name})
    spec = ResourceSpec(
        name=found.tool.name,
        uri=template.text if template.is_fixed else None,
        uri_template=None if template.is_fixed else template.text,
        title=tool.spec.title,
        description=tool.spec.description,
        mime_type=found.mime_type,
        arguments=None if template.is_fixed else schema,
    )
    own = msgspec.structs.replace(tool.spec, name=found.name, input_schema=URI_SCHEMA)
    reader = dataclasses.replace(
        tool,
        spec=own,
        function=_with_uri(tool),
        parse=_uri_parser(template, schema, tool.parse),
        injected=(*tool.injected, _URI),
    )
    return CompiledResource(spec=spec, template=template, tool=reader, complete=found.complete)


def compile_prompt(found: ReadDeclaration, state: Mapping[Any, object], max_output_bytes: int | None) -> CompiledPrompt:
    """See `compile_tool`.

    Raises:
        AgentError: ``INVALID_TOOL_NAME``, ``INVALID_SCHEMA`` or ``MISSING_STATE``.
    """
    tool = compile_tool(found.tool, state, max_output_bytes)
    spec = PromptSpec(
        name=found.tool.name,
        title=tool.spec.title,
        description=tool.spec.description,
        arguments=tool.spec.input_schema,
    )
    renderer = dataclasses.replace(
        tool,
        spec=msgspec.structs.replace(tool.spec, name=found.name),
        render=_described(tool.render, tool.spec.description),
    )
    return CompiledPrompt(spec=spec, tool=renderer, complete=found.complete)


URI_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"uri": {"type": "string"}},
    "required": ["uri"],
    "additionalProperties": False,
}
"""The arguments of a read, as policies see them."""


class _Address(msgspec.Struct):
    uri: str


def _uri_parser(
    template: UriTemplate, schema: Mapping[str, Any], parse: Callable[[bytes], dict[str, Any]]
) -> Callable[[bytes], dict[str, Any]]:
    def parse_uri(data: bytes) -> dict[str, Any]:
        uri = msgspec.json.decode(data, type=_Address).uri
        values = template.match(uri)
        if values is None:
            raise unknown_resource()
        return {**parse(msgspec.json.encode(from_texts(values, schema))), _URI: uri}

    return parse_uri


def unknown_resource() -> AgentError:
    """``RESOURCE_NOT_FOUND``."""
    return AgentError.standard(
        "RESOURCE_NOT_FOUND",
        "there is no resource at that address",
        suggested_action="Look in the list of resources and templates.",
    )


def _with_uri(tool: CompiledTool) -> Callable[..., Any]:
    """The function, with the address beside the value, for `render`."""
    function = tool.function

    async def read(*, carmy_uri: str, **arguments: Any) -> tuple[str, Any]:
        return carmy_uri, await function(**arguments)

    def read_in_thread(*, carmy_uri: str, **arguments: Any) -> tuple[str, Any]:
        return carmy_uri, function(**arguments)

    return read if tool.is_async else read_in_thread


def from_texts(given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of which each may be a text, as addresses and some protocols have them, as JSON values.

    A text for a parameter that takes no text is read as JSON; what is no JSON stays a text, which the check of the arguments refuses.
    """
    properties: Mapping[str, Any] = schema.get("properties", {})
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    return {
        name: _from_text(value)
        if isinstance(value, str) and not _takes_text(properties.get(name, {}), definitions, 0)
        else value
        for name, value in given.items()
    }


def _from_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


_MOST_REFERENCES = 8
"""References that are followed, one to the next, to find out what a parameter takes."""


def _takes_text(schema: Any, definitions: Mapping[str, Any], depth: int) -> bool:
    if not is_dict(schema) or depth > _MOST_REFERENCES:
        return True
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _takes_text(definitions.get(reference.rpartition("/")[2]), definitions, depth + 1)
    if choices := schema.get("anyOf", schema.get("oneOf")):
        return any(_takes_text(choice, definitions, depth + 1) for choice in choices)
    if "enum" in schema:
        return any(isinstance(value, str) for value in schema["enum"])
    if "const" in schema:
        return isinstance(schema["const"], str)
    kind = schema.get("type")
    return kind is None or kind == "string" or (isinstance(kind, list) and "string" in kind)


def _resource_output(mime_type: str | None, function: Callable[..., Any], plan: SignaturePlan) -> OutputRenderer:
    """The renderer of what a resource holds."""
    own = output_renderer(function, plan)

    def limited(limit: int) -> Callable[[Any], bytes]:
        render = own.limited(limit)

        def contents(pair: tuple[str, Any]) -> bytes:
            uri, value = pair
            try:
                data = render(value)
            except TakesLong as long:
                check: Callable[[Any], Any] = long.check
            else:
                return written(uri, value, data)
            raise TakesLong(lambda work: written(uri, value, check(work)))

        def written(uri: str, value: Any, data: bytes) -> bytes:
            found = msgspec.json.encode(ReadResult(_contents(uri, value, data, mime_type)))
            if len(found) > limit:
                raise too_large(len(found), limit)
            return found

        return contents

    return OutputRenderer(_read_schema(), limited, lambda value: value)


def _contents(uri: str, value: Any, data: bytes, mime_type: str | None) -> tuple[ResourceContents, ...]:
    """A value as the parts of a resource.

    Args:
        uri: The address that was read.
        value: What the function returned.
        data: The same as JSON, which has been checked.
        mime_type: The declared one.
    """
    if isinstance(value, str):
        return (ResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=value),)
    if isinstance(value, bytes):
        return (ResourceContents(uri=uri, mime_type=mime_type or "application/octet-stream", data=value),)
    items: list[Any] = [value] if isinstance(value, Content) else [*value] if is_list(value) or is_tuple(value) else []
    if items and all(isinstance(item, Content) for item in items):
        return tuple(_part(uri, item, mime_type) for item in items)
    return (ResourceContents(uri=uri, mime_type=mime_type or "application/json", text=data.decode()),)


def _part(uri: str, content: Content, mime_type: str | None) -> ResourceContents:
    match content:
        case File():
            own = None if content.mime_type is msgspec.UNSET else content.mime_type
            return ResourceContents(
                uri=content.uri,
                mime_type=own or mime_type,
                text=None if content.text is msgspec.UNSET else content.text,
                data=None if content.data is msgspec.UNSET else content.data,
            )
        case Text() | ResourceLink():
            return ResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=text_for(content))
        case _:
            return ResourceContents(uri=uri, mime_type=content.mime_type, data=content.data)


def _prompt_output(function: Callable[..., Any], plan: SignaturePlan) -> OutputRenderer:
    """The renderer of the messages of a prompt.

    Raises:
        UnusableType: The function returns something else.
    """
    if not _is_messages(plan.returns):
        raise UnusableType(
            "a prompt returns messages",
            "Return str, Message or content of carmy_engine.content, or a list of these.",
        )

    def limited(limit: int) -> Callable[[Any], bytes]:
        def render(value: Any) -> bytes:
            try:
                data = msgspec.json.encode(messages_of(value))
            except (TypeError, ValueError) as wrong:
                problem: Problem = {"path": "", "code": "wrong_type", "message": str(wrong)}
            else:
                if len(data) > limit:
                    raise too_large(len(data), limit)
                return data
            raise invalid_output([problem])

        return render

    return OutputRenderer(_PROMPT_SCHEMA, limited, lambda value: value)


def _is_messages(annotation: Any, *, in_list: bool = False) -> bool:
    base, _ = split_annotated(annotation)
    origin, arguments = typing.get_origin(base), typing.get_args(base)
    if origin in (list, tuple) and not in_list:
        return all(item is ... or _is_messages(item, in_list=True) for item in arguments)
    if arguments and origin not in (list, tuple):
        return all(_is_messages(choice, in_list=in_list) for choice in arguments)
    return base in (str, Message, *KINDS)


def _described(render: Callable[[Any], bytes], description: str) -> Callable[[Any], bytes]:
    """The whole result of a prompt: its messages, and its description."""
    head = b'{"description":%b,"messages":' % msgspec.json.encode(description)
    return lambda value: b"%b%b}" % (head, render(value))


@functools.cache
def _read_schema() -> Mapping[str, Any]:
    """The schema of a read resource. On first use: it takes longer than the rest of this module, and most programs have no resources."""
    return schema_of(ReadResult, output=True)


_PROMPT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"description": {"type": "string"}, "messages": {"type": "array", "items": {"type": "object"}}},
    "required": ["description", "messages"],
}
