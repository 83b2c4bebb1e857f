"""Registries: tools from several places, put together before an application has them, and narrowed for one agent."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol, Self, runtime_checkable

from .._model import protocols
from .._model.context import AgentContext
from .._model.errors import AgentError, DeclarationError
from .._model.request import ExecutionRequest
from .._model.result import ExecutionResult
from .._model.spec import ToolSpec
from ..providers import Format, Provider, neutral, provider
from .declaration import ToolDeclaration, compile_tool, declaration_of, function_tool, spec_of

Declared = ToolDeclaration | protocols.Tool
"""A tool that is not compiled yet."""


@runtime_checkable
class Dispatcher(Protocol):
    """A context that calls tools by name, such as that of a graph's node."""

    async def dispatch(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, only: Iterable[str] | None = None
    ) -> ExecutionResult:
        """Run a tool; `only` are the names of a registry, and all others are not permitted."""
        ...


class ToolRegistry:
    """Tools from several places, in the order in which they were registered.

    ::

        tools = ToolRegistry().register(search, InventoryTools(database), billing)
        support = tools.subset("inventory.lookup", "inventory.reserve")
        app.add(support)

    A registry holds declarations; an `App` gives them state and runs them. It is iterated over by name.
    """

    def __init__(self) -> None:
        self._tools: dict[str, Declared] = {}
        self._withheld: frozenset[str] | None = None

    def register(self, *providers: object) -> Self:
        """Add tools: all of them, or none if one cannot be added.

        Args:
            *providers: Functions declared with `tool`, tools made by hand, other registries (as they are now), and
                objects whose methods are declared with `tool`, their own and those of their base classes.

        Raises:
            AgentError: ``DUPLICATE_TOOL``, naming both places.
            DeclarationError: Something is no tool and has none; or this is a subset, which can only narrow.
        """
        if self._withheld is not None:
            raise DeclarationError("a subset can only narrow: register with the registry that it was made from")
        tools = dict(self._tools)
        for tool in declarations_of(providers):
            name = name_of(tool)
            if name in tools:
                places = [place_of(tools[name]), place_of(tool)]
                raise duplicate(name, places, "nothing was registered")
            tools[name] = tool
        self._tools = tools
        return self

    def subset(self, *names: str) -> ToolRegistry:
        """Some of these tools, in the order of this registry. What is registered later does not get in.

        An application that is given the subset answers ``TOOL_NOT_PERMITTED`` for the tools it leaves out.

        Raises:
            DeclarationError: There is no such tool here.
        """
        for name in names:
            if name not in self._tools:
                raise DeclarationError(_no_such_tool(name, self._tools, self._withheld or frozenset()))
        made = ToolRegistry()
        made._tools = {name: tool for name, tool in self._tools.items() if name in names}
        made._withheld = frozenset(self._tools.keys() - made._tools.keys()) | (self._withheld or frozenset())
        return made

    @property
    def withheld(self) -> frozenset[str]:
        """The names that this subset leaves out; none in a registry that is no subset."""
        return self._withheld or frozenset()

    @property
    def tools(self) -> tuple[Declared, ...]:
        """The declarations, in order."""
        return tuple(self._tools.values())

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        """The properties of the tools by name, in order.

        Raises:
            AgentError: ``INVALID_TOOL_NAME`` or ``INVALID_SCHEMA``.
        """
        return MappingProxyType({name: spec_of(tool) for name, tool in self._tools.items()})

    def manifest(self, format: Format | None = None) -> list[dict[str, Any]]:  # noqa: A002 - what it is called everywhere
        """The tools as a model sees them, ready for JSON.

        Args:
            format: Of one provider (`carmy_engine.providers`); None for name, description and parameters only.

        Raises:
            AgentError: ``INVALID_TOOL_NAME`` or ``INVALID_SCHEMA``.
            DeclarationError: There is no such format.
        """
        if format is None:
            return [neutral(spec) for spec in self.specs.values()]
        return self.provider(format).tools

    def provider(self, format: Format) -> Provider:  # noqa: A002 - as above
        """The tools in one provider's format, with the parser of its calls and the renderer of results.

        Raises:
            AgentError: ``INVALID_TOOL_NAME`` or ``INVALID_SCHEMA``.
            DeclarationError: There is no such format.
        """
        return provider(format, self.specs.values(), self.withheld)

    async def dispatch(
        self, name: str, arguments: Mapping[str, Any] | None = None, context: Dispatcher | AgentContext | None = None
    ) -> Any:
        """Call a tool of this registry by name; return its output, JSON-shaped.

        ::

            confirmation = await support.dispatch("inventory.reserve", {"sku": "AB-12", "count": 2}, ctx)

        Args:
            name: The tool.
            arguments: Its arguments.
            context: The context of a graph's node: the call is then one of the node, in its engine, which has this registry's tools. Or
                a trusted context, or None, outside of a graph: an engine is opened for this one call.

        Raises:
            AgentError: What the execution ended with; ``TOOL_NOT_PERMITTED`` for what a subset leaves out.
            StartupError: Outside of a graph: a tool needs state, which only an application has.
        """
        if isinstance(context, Dispatcher):
            result = await context.dispatch(name, arguments, only=self)
            return result.unwrap()
        # An engine is built on registries, and no other use of a registry needs one.
        from .._engine.opening import open_engine  # noqa: PLC0415

        request = ExecutionRequest(tool=name, arguments=arguments)
        compiled = [compile_tool(tool, {}) for tool in self._tools.values()]
        async with open_engine(compiled, withheld=self.withheld) as engine:
            result = await engine.bind(context=context).execute(request)
        return result.unwrap()

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"<ToolRegistry {', '.join(self._tools)}>"


def declarations_of(providers: Iterable[object]) -> Iterator[Declared]:
    """The tools of everything that can be registered, in order.

    Raises:
        DeclarationError: Something is no tool and has none.
    """
    for given in providers:
        if isinstance(given, ToolRegistry):
            yield from given.tools
        elif (methods := _methods_of(given)) is not None:
            yield from methods
        else:
            yield declaration_of(given)


def name_of(tool: Declared) -> str:
    """The name that a tool is called by."""
    return tool.name if isinstance(tool, ToolDeclaration) else tool.spec.name


def place_of(tool: Declared) -> str:
    """Where a tool comes from, for messages."""
    return tool.location if isinstance(tool, ToolDeclaration) else type(tool).__name__


def duplicate(name: str, places: list[str], what: str) -> AgentError:
    """``DUPLICATE_TOOL``."""
    return AgentError.standard(
        "DUPLICATE_TOOL",
        f"{len(places)} tools are named {name!r}: {', '.join(places)}; {what}; rename all but one with @tool(name=...)",
        details={"tool": name, "locations": places},
    )


def _methods_of(provider: object) -> list[ToolDeclaration] | None:
    """The tools that an object's methods are, in the order of their definition, base classes first.

    Returns:
        None when the object is something else: a function, a tool made by hand, or nothing that has tools.
    """
    if isinstance(provider, protocols.Tool | ToolDeclaration) or inspect.isroutine(provider):
        return None
    cls = provider if isinstance(provider, type) else type(provider)
    names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
    found: list[ToolDeclaration] = []
    for name in names:
        marked = [base for base in cls.__mro__ if function_tool(vars(base).get(name)) is not None]
        if not marked:
            continue
        if isinstance(provider, type):
            instead = f"Register an object of it: {cls.__name__}(...)."
            raise DeclarationError(f"{cls.__qualname__} is a class, and its tools are methods. {instead}")
        current = inspect.getattr_static(cls, name)
        if function_tool(current) is not None:
            found.append(_bound(provider, name))
        elif current is not None:
            # Otherwise an override without @tool would remove the tool in silence.
            raise DeclarationError(
                f"{cls.__qualname__}.{name} replaces a tool of {marked[0].__qualname__}. Decorate it with "
                f"@tool(effect=...) too, or write '{name} = None' to leave the tool out."
            )
    return found or None


def _bound(provider: Any, name: str) -> ToolDeclaration:
    function = getattr(provider, name)
    declaration = declaration_of(function)
    assert isinstance(declaration, ToolDeclaration)
    return declaration


def _no_such_tool(name: str, known: Mapping[str, object], withheld: frozenset[str]) -> str:
    if name in withheld:
        return f"subset: this is a subset that leaves {name!r} out, and a subset can only narrow"
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known) or 'none at all'}"
    return f"subset: there is no tool {name!r} here; {hint}"
