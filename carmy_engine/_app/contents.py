"""The tools, resources and prompts of an application: as they were declared, and compiled for one opening."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .._gateway.mount import Mount
from .._gateway.tool_source import ToolSource
from .._model.compiled_tool import CompiledTool
from .._model.errors import AgentError
from .._tools.declaration import ToolDeclaration, compile_tool, problems_of
from .._tools.registry import Declared, ToolRegistry, declarations_of, duplicate, name_of, place_of
from .._tools.resources import (
    CompiledPrompt,
    CompiledResource,
    ReadDeclaration,
    compile_prompt,
    compile_resource,
)


class Contents:
    """What an application offers.

    Attributes:
        reads: The declared resources and prompts.
        withheld: Names of tools that registries left out.
        registered: Returns the tools that ``@tool`` registered; those that were not added are offered too.
    """

    def __init__(self) -> None:
        self._tools: list[Declared] = []
        self.reads: list[ReadDeclaration] = []
        self.withheld: frozenset[str] = frozenset()
        self.registered: Callable[[], Sequence[ToolDeclaration]] = tuple

    def add(self, tools: Sequence[object]) -> None:
        """Add everything that `ToolRegistry.register` takes.

        Raises:
            DeclarationError: One of them is none of these.
        """
        self._tools.extend([*declarations_of(tools)])
        self.withheld = self.withheld.union(*(tool.withheld for tool in tools if isinstance(tool, ToolRegistry)))

    def tools(self) -> Iterator[Declared]:
        """The tools that were added, then registered tools that were not."""
        yield from self._tools
        added = {tool.function for tool in self._tools if isinstance(tool, ToolDeclaration)}
        yield from (tool for tool in self.registered() if tool.function not in added)

    def compile_tools(
        self, state: Mapping[Any, object], max_output_bytes: int | None
    ) -> tuple[list[CompiledTool], list[AgentError]]:
        """The tools that compile, and the problems of the others."""
        compiled: list[CompiledTool] = []
        problems: list[AgentError] = []
        places: dict[str, list[str]] = {}
        for tool in self.tools():
            try:
                ready = compile_tool(tool, state, max_output_bytes)
            except AgentError as problem:
                # Never fewer than the one that was raised: a tool without a problem would be missing without a reason.
                problems += problems_of(tool, state) or [problem]
            else:
                compiled.append(ready)
            places.setdefault(name_of(tool), []).append(place_of(tool))
        return compiled, [*problems, *_duplicates(places, "an application has each name once")]

    def compile_reads(
        self, state: Mapping[Any, object], max_output_bytes: int | None
    ) -> tuple[list[CompiledResource], list[CompiledPrompt], list[AgentError]]:
        """The resources and prompts that compile, and the problems of the others."""
        resources: list[CompiledResource] = []
        prompts: list[CompiledPrompt] = []
        problems: list[AgentError] = []
        places: dict[str, list[str]] = {}
        for read in self.reads:
            for name in (read.name, *(() if read.template is None else (read.template.text,))):
                places.setdefault(name, []).append(read.tool.location)
            try:
                if read.template is None:
                    prompts.append(compile_prompt(read, state, max_output_bytes))
                else:
                    resources.append(compile_resource(read, state, max_output_bytes))
            except AgentError as problem:
                problems += problems_of(read.tool, state) or [problem]
        taken_twice = _duplicates(places, "an application has each name and each address once")
        return resources, prompts, [*problems, *taken_twice]

    def clashes(self, mounted: Sequence[tuple[Mount | ToolSource, CompiledTool]]) -> Iterator[AgentError]:
        """``DUPLICATE_TOOL`` for each name of what is mounted that something else has as well."""
        places: dict[str, list[str]] = {}
        for own in self.tools() if mounted else ():
            places[name_of(own)] = [place_of(own)]
        for mount, tool in mounted:
            where = places.setdefault(tool.spec.name, [])
            where.append(mount.place)
            if len(where) > 1:
                yield duplicate(tool.spec.name, where, "give what is mounted a prefix")


def _duplicates(places: Mapping[str, list[str]], advice: str) -> Iterable[AgentError]:
    return (duplicate(name, where, advice) for name, where in places.items() if len(where) > 1)
