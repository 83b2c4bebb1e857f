"""The resources and prompts of another executor as ones of this engine."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

from .._model.compiled_tool import CompiledTool
from .._model.effect import Effect
from .._model.errors import AgentError, ClosedError, OutcomeUnknownError
from .._model.protocols import Completer, Executor, PromptReader, ResourceReader
from .._model.resources import PromptSpec, ResourceSpec
from .._model.result import ExecutionResult
from .._model.spec import ToolSpec
from .._tools.resources import (
    PROMPT_PREFIX,
    RESOURCE_PREFIX,
    URI_SCHEMA,
    CompiledPrompt,
    CompiledResource,
    Complete,
    unknown_resource,
)
from .._tools.uri_template import TemplateError, UriTemplate

log = logging.getLogger("carmy.engine")

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")

MAX_NAME = 100
"""Letters of a name from elsewhere, so that it fits behind a prefix."""


async def remote_reads(executor: Executor, prefix: str) -> list[CompiledResource | CompiledPrompt]:
    """The resources and prompts of an executor; none of one that has neither.

    Addresses stay as they are. A resource whose address cannot be matched here is left out and logged.

    Args:
        executor: The executor.
        prefix: What comes before names.
    """
    found: list[CompiledResource | CompiledPrompt] = []
    names: set[str] = set()

    def name_of(name: str) -> str:
        made = base = prefix + (_UNSAFE.sub("_", name).strip("_")[:MAX_NAME] or "unnamed")
        number = 1
        while made in names:
            number += 1
            made = f"{base}_{number}"
        names.add(made)
        return made

    if isinstance(executor, ResourceReader):
        listed = await executor.resources()
        for spec in (*listed.resources, *listed.templates):
            try:
                template = UriTemplate(spec.uri or spec.uri_template or "")
            except TemplateError as problem:
                log.warning("a resource of a mounted executor is left out: %s", problem)
            else:
                found.append(_resource(executor, spec, template, name_of(spec.name)))
    if isinstance(executor, PromptReader):
        names.clear()
        found += [_prompt(executor, spec, name_of(spec.name)) for spec in (await executor.prompts()).prompts]
    return found


def _resource(executor: ResourceReader, spec: ResourceSpec, template: UriTemplate, name: str) -> CompiledResource:
    async def read(uri: str) -> bytes:
        return await _data(executor.read_resource(uri), f"the resource {name}")

    def parse(data: bytes) -> dict[str, Any]:
        given: dict[str, Any] = msgspec.json.decode(data)
        if template.match(given["uri"]) is None:
            raise unknown_resource()
        return given

    tool = _tool(RESOURCE_PREFIX + name, spec.title, spec.description, URI_SCHEMA, read, parse)
    return CompiledResource(
        spec=msgspec.structs.replace(spec, name=name),
        template=template,
        tool=tool,
        complete=_completion(executor, "resource", template.text),
    )


def _prompt(executor: PromptReader, spec: PromptSpec, name: str) -> CompiledPrompt:
    async def render(arguments: Mapping[str, Any]) -> bytes:
        return await _data(executor.get_prompt(spec.name, arguments), f"the prompt {name}")

    def parse(data: bytes) -> dict[str, Any]:
        return {"arguments": msgspec.json.decode(data)}  # checked where the prompt is

    return CompiledPrompt(
        spec=msgspec.structs.replace(spec, name=name),
        tool=_tool(PROMPT_PREFIX + name, spec.title, spec.description, spec.arguments, render, parse),
        complete=_completion(executor, "prompt", spec.name),
    )


def _tool(
    name: str,
    title: str | None,
    description: str,
    schema: Mapping[str, Any],
    function: Callable[..., Any],
    parse: Callable[[bytes], dict[str, Any]],
) -> CompiledTool:
    spec = ToolSpec(
        name=name,
        title=title,
        description=description,
        input_schema=schema,
        output_schema={},
        effect=Effect.READ,
        parallel_safe=True,
    )
    return CompiledTool(spec=spec, function=function, is_async=True, context_parameter=None, parse=parse, render=bytes)


async def _data(reading: Awaitable[ExecutionResult], what: str) -> bytes:
    """The data of a read there.

    Raises:
        AgentError: What it ended with there; ``EXECUTOR_UNAVAILABLE`` if the executor is lost.
    """
    try:
        result = await reading
    except (ClosedError, OutcomeUnknownError) as lost:
        log.warning("the executor behind %s was lost: %s", what, lost)
        raise AgentError.standard("EXECUTOR_UNAVAILABLE", f"the executor behind {what} cannot be reached") from lost
    if result.error is not None:
        raise AgentError.of(result.error)
    return b"null" if result.data_json is None else result.data_json


def _completion(executor: object, kind: Literal["prompt", "resource"], name: str) -> Complete | None:
    if not isinstance(executor, Completer):
        return None

    async def complete(argument: str, value: str, given: Mapping[str, str]) -> Iterable[str]:
        return (await executor.complete(kind, name, argument, value, given)).values

    return complete
