"""The resources and prompts of an engine: listing, reading, completion."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import msgspec

from .._execution.execution import Caller
from .._execution.policy import POLICY_SECONDS
from .._execution.tool_table import Registry
from .._model.compiled_tool import CompiledTool
from .._model.context import AgentContext
from .._model.error_boundary import Fault, as_agent_error, ask_foreign
from .._model.errors import AgentError
from .._model.protocols import Policy
from .._model.request import ExecutionRequest
from .._model.resources import (
    MAX_COMPLETIONS,
    Completion,
    PromptCatalog,
    PromptSpec,
    ResourceCatalog,
    ResourceSpec,
)
from .._model.result import ExecutionResult
from .._model.suggestions import closest_names
from .._tools.resources import (
    PROMPT_PREFIX,
    RESOURCE_PREFIX,
    CompiledPrompt,
    CompiledResource,
    Complete,
    from_texts,
    unknown_resource,
)
from .changes import Changes, Watch
from .pipeline import Pipeline


class _Registry(Registry):
    """A table of resources or prompts."""

    async def unknown(self, name: str, only: frozenset[str] | None, context: AgentContext) -> AgentError:
        """``RESOURCE_NOT_FOUND`` or ``PROMPT_NOT_FOUND``."""
        if name.startswith(RESOURCE_PREFIX):
            return unknown_resource()
        visible = await self.visible_to(context, only)
        near = closest_names(name, visible)
        message = "there is no prompt of that name"
        if near:
            message += f"; did you mean {near[0].removeprefix(PROMPT_PREFIX)}?"
        return AgentError.standard("PROMPT_NOT_FOUND", message)


class Reading:
    """The resources and prompts of one engine, and the watchers of all its lists.

    Args:
        pipeline: That of the tools; reads go through the same steps.
        resources: In the order in which addresses are compared.
        prompts: In any order.
        engine_timeout: The engine's default limit, in seconds.
        policies: The application's, in order.
        layered: Adds the layers of state and middleware to tools.

    Raises:
        StartupError: Two have the same name.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        resources: Iterable[CompiledResource],
        prompts: Iterable[CompiledPrompt],
        engine_timeout: float,
        policies: Sequence[Policy],
        layered: Callable[[Iterable[CompiledTool]], Iterable[CompiledTool]],
    ) -> None:
        self.changes = Changes()
        resources, prompts = [*resources], [*prompts]
        self._resources = {resource.tool.spec.name: resource for resource in resources}
        self._prompts = {prompt.tool.spec.name: prompt for prompt in prompts}
        # Of two with one address, the first counts: the application's own come before those of mounted executors.
        self._fixed = {one.template.text: one for one in reversed(resources) if one.template.is_fixed}
        self._templates = [resource for resource in resources if not resource.template.is_fixed]

        def table(compiled: Iterable[CompiledResource | CompiledPrompt]) -> Pipeline:
            made = copy.copy(pipeline)
            made.registry = _Registry(layered([one.tool for one in compiled]), engine_timeout, policies)
            return made

        self._read = table(resources)
        self._get = table(prompts)
        self.registries: Mapping[Literal["tools", "resources", "prompts"], Registry] = {
            "tools": pipeline.registry,
            "resources": self._read.registry,
            "prompts": self._get.registry,
        }

    def switch(self, name: str, *, on: bool) -> bool:
        """Enable or disable a tool, a resource or a prompt. False if it was so already.

        Raises:
            KeyError: There is none of this name.
        """
        for kind, registry in self.registries.items():
            if name in registry.names:
                changed = registry.switch(name, on=on)
                if changed:
                    self.changes.publish(kind)
                return changed
        raise KeyError(name)

    async def resources(self, caller: Caller) -> ResourceCatalog:
        """The resources that a caller may read."""
        names = await self._read.registry.visible_to(caller.context, caller.only)
        specs = [self._resources[name].spec for name in names]
        resources = tuple(spec for spec in specs if spec.uri is not None)
        templates = tuple(spec for spec in specs if spec.uri is None)
        document = msgspec.json.encode({"resources": resources, "templates": templates})
        return ResourceCatalog(
            resources=resources,
            templates=templates,
            document=document,
            version=hashlib.sha256(document).hexdigest(),
        )

    async def prompts(self, caller: Caller) -> PromptCatalog:
        """The prompts that a caller may get."""
        names = await self._get.registry.visible_to(caller.context, caller.only)
        prompts = tuple(self._prompts[name].spec for name in names)
        document = msgspec.json.encode({"prompts": prompts})
        return PromptCatalog(prompts=prompts, document=document, version=hashlib.sha256(document).hexdigest())

    def read(self, caller: Caller, uri: str, timeout_ms: float | None) -> Coroutine[Any, Any, ExecutionResult]:
        """Read a resource."""
        found = self._find(uri)
        # Without a match, a name that no resource has: an address may be confidential, and records hold names.
        name = RESOURCE_PREFIX if found is None else found.tool.spec.name
        request = ExecutionRequest(tool=name, arguments={"uri": uri}, timeout_ms=timeout_ms)
        return self._read.run(request, caller)

    def get(
        self, caller: Caller, name: str, arguments: Mapping[str, Any] | None, timeout_ms: float | None
    ) -> Coroutine[Any, Any, ExecutionResult]:
        """Render a prompt."""
        found = self._prompts.get(PROMPT_PREFIX + name)
        given = arguments if found is None else from_texts(arguments or {}, found.spec.arguments)
        request = ExecutionRequest(tool=PROMPT_PREFIX + name, arguments=given, timeout_ms=timeout_ms)
        return self._get.run(request, caller)

    async def check_readable(self, caller: Caller, uri: str) -> None:
        """Refuse an address that a caller cannot read.

        Raises:
            AgentError: ``RESOURCE_NOT_FOUND``.
        """
        found = self._find(uri)
        if found is None or not await self._is_visible(self._read.registry, caller, found.tool):
            raise unknown_resource()

    async def complete(
        self,
        caller: Caller,
        kind: Literal["prompt", "resource"],
        name: str,
        argument: str,
        value: str,
        given: Mapping[str, str],
    ) -> Completion:
        """The values of an argument that begin with `value`.

        Raises:
            AgentError: ``PROMPT_NOT_FOUND`` or ``RESOURCE_NOT_FOUND``; what the completion function refuses with.
        """
        registry: Registry = self._get.registry
        found: CompiledPrompt | CompiledResource | None = self._prompts.get(PROMPT_PREFIX + name)
        spec: PromptSpec | ResourceSpec | None = None if found is None else found.spec
        if kind == "resource":
            registry = self._read.registry
            found = next((one for one in self._templates if name in (one.template.text, one.spec.name)), None)
            spec = None if found is None else found.spec
        if found is None or spec is None or not await self._is_visible(registry, caller, found.tool):
            prefix = RESOURCE_PREFIX if kind == "resource" else PROMPT_PREFIX
            raise await registry.unknown(prefix + name, caller.only, caller.context)
        values = _choices(spec.arguments or {}, argument)
        if found.complete is not None:
            values += await _completed(found.complete, found.tool.spec.name, argument, value, given)
        chosen = [one for one in dict.fromkeys(values) if one.lower().startswith(value.lower())]
        return Completion(
            values=tuple(chosen[:MAX_COMPLETIONS]), total=len(chosen), has_more=len(chosen) > MAX_COMPLETIONS
        )

    def _find(self, uri: str) -> CompiledResource | None:
        fixed = self._fixed.get(uri)
        if fixed is not None:
            return fixed
        return next((one for one in self._templates if one.template.match(uri) is not None), None)

    @staticmethod
    async def _is_visible(registry: Registry, caller: Caller, tool: CompiledTool) -> bool:
        name = tool.spec.name
        if caller.only is not None and name not in caller.only:
            return False
        return name in await registry.visible_to(caller.context, frozenset({name}))


def _choices(schema: Mapping[str, Any], argument: str) -> list[str]:
    """The values that a schema lists for an argument."""
    definitions = schema.get("$defs", {})

    def of(field: Mapping[str, Any], depth: int = 0) -> list[str]:
        if depth > _MOST_REFERENCES:
            return []
        reference = field.get("$ref")
        if isinstance(reference, str):
            return of(definitions.get(reference.rpartition("/")[2], {}), depth + 1)
        found: list[str] = [value for choice in field.get("anyOf", ()) for value in of(choice, depth + 1)]
        found += [str(value) for value in field.get("enum", ())]
        if "const" in field:
            found.append(str(field["const"]))
        return [*found, "true", "false"] if field.get("type") == "boolean" else found

    return of(schema.get("properties", {}).get(argument, {}))


_MOST_REFERENCES = 8
"""References that are followed, one to the next."""

MAX_COMPLETED = 10_000
"""Values that are taken of one answer of a completion function."""


async def _completed(complete: Complete, name: str, argument: str, value: str, given: Mapping[str, str]) -> list[str]:
    try:
        answer: Iterable[Any] = await ask_foreign(POLICY_SECONDS, complete, argument, value, given)
        found = [str(one) for one, _ in zip(answer or (), range(MAX_COMPLETED), strict=False)]
    except (Fault, TypeError) as fault:
        error, _ = as_agent_error(fault, f"the completion of {name}", expose=False)
    else:
        return found
    raise error


class Readers:
    """The methods of an executor that read resources and prompts."""

    _caller: Caller

    def _reading(self) -> Reading:
        """The tables, as long as the engine is open."""
        raise NotImplementedError

    async def resources(self) -> ResourceCatalog:
        """The resources and templates that this caller may read."""
        return await self._reading().resources(self._caller)

    def read_resource(self, uri: str, *, timeout_ms: float | None = None) -> Coroutine[Any, Any, ExecutionResult]:
        """Read a resource: an execution with effect ``read``. Its data is a `ReadResult`.

        Args:
            uri: The address.
            timeout_ms: Time limit in milliseconds.
        """
        return self._reading().read(self._caller, uri, timeout_ms)

    async def prompts(self) -> PromptCatalog:
        """The prompts that this caller may get."""
        return await self._reading().prompts(self._caller)

    def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout_ms: float | None = None
    ) -> Coroutine[Any, Any, ExecutionResult]:
        """Render a prompt: an execution with effect ``read``. Its data is a `PromptResult`.

        Args:
            name: Its name.
            arguments: A text for a parameter that takes no text is read as JSON.
            timeout_ms: Time limit in milliseconds.
        """
        return self._reading().get(self._caller, name, arguments, timeout_ms)

    async def complete(
        self,
        kind: Literal["prompt", "resource"],
        name: str,
        argument: str,
        value: str,
        given: Mapping[str, str] | None = None,
    ) -> Completion:
        """The values of an argument that begin with a text.

        Args:
            kind: Of what.
            name: The name of the prompt; the name or the address of the template.
            argument: The argument.
            value: The beginning of its value.
            given: The other arguments, as far as they are known.

        Raises:
            AgentError: ``PROMPT_NOT_FOUND`` or ``RESOURCE_NOT_FOUND``; what the completion function refuses with.
        """
        return await self._reading().complete(self._caller, kind, name, argument, value, given or {})

    def watch(self) -> AbstractContextManager[Watch]:
        """Watch changes of the lists, and of resources that are subscribed to, for the length of a block.

        ::

            with engine.watch() as changes:
                await changes.subscribe("orders://7")
                async for change in changes: ...
        """
        reading = self._reading()

        def check(uri: str) -> Awaitable[None]:
            return reading.check_readable(self._caller, uri)

        return reading.changes.watch(check)
