"""The tools of an engine, by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from .._model.compiled_tool import CompiledTool
from .._model.context import AgentContext
from .._model.error_boundary import Fault, log_fault
from .._model.errors import AgentError, StartupError
from .._model.protocols import Policy
from .._model.spec import Catalog, PublicSpec, ToolSpec
from .._model.suggestions import nearby, unknown_tool
from .policy import Policies
from .turns import Turn


class Registered:
    """A tool and its state in the engine.

    Attributes:
        tool: The compiled tool.
        spec: Its properties.
        turn: Its exclusive slot, None when it is parallel-safe.
        timeout: The smaller limit of the tool and the engine, in seconds.
        confirmation: The permission that a person grants; None when there is nothing to confirm.
    """

    __slots__ = ("confirmation", "spec", "timeout", "tool", "turn")

    def __init__(self, tool: CompiledTool, engine_timeout: float) -> None:
        self.confirmation = f"confirm:{tool.spec.name}" if tool.spec.needs_confirmation else None
        self.tool = tool
        self.spec = tool.spec
        self.turn = None if tool.spec.parallel_safe else Turn(tool.spec.name, tool.spec.max_waiting)
        self.timeout = engine_timeout if tool.spec.timeout is None else min(engine_timeout, tool.spec.timeout)


class Registry:
    """Table of the tools of an engine. After construction, tools are only switched off and on.

    Args:
        tools: In any order.
        engine_timeout: The engine's default limit, in seconds.
        policies: The application's, in order.
        withheld: Names of tools that exist elsewhere and were left out on purpose.

    Attributes:
        policies: The policies of every call.

    Raises:
        StartupError: ``DUPLICATE_TOOL`` for each name that is taken twice.
    """

    def __init__(
        self,
        tools: Iterable[CompiledTool],
        engine_timeout: float,
        policies: Sequence[Policy] = (),
        withheld: Iterable[str] = (),
    ) -> None:
        self.policies = Policies(policies)
        self._tools: dict[str, Registered] = {}
        problems: list[AgentError] = []
        for tool in tools:
            if tool.spec.name in self._tools:
                problems.append(AgentError.standard("DUPLICATE_TOOL", f"two tools are named {tool.spec.name!r}"))
            self._tools[tool.spec.name] = Registered(tool, engine_timeout)
        if problems:
            raise StartupError(problems)
        self._disabled: dict[str, Registered] = {}
        self._withheld = frozenset(withheld) - self._tools.keys()
        self._functions = {registered.tool.function: registered for registered in self._tools.values()}
        self._catalogs: dict[tuple[str, ...], Catalog] = {}

    def __len__(self) -> int:
        return len(self._tools)

    async def visible_to(self, context: AgentContext, only: frozenset[str] | None) -> tuple[str, ...]:
        """Sorted names of the tools that a caller may use. The same rule decides which calls are allowed."""
        names = sorted(self._tools if only is None else only & self._tools.keys())
        return tuple(await self._listed(names, context) if self.policies.exist else names)

    async def _listed(self, names: Iterable[str], context: AgentContext) -> list[str]:
        """Names that the policies list. A tool whose policy fails is omitted, since a call to it would fail, too."""
        listed: list[str] = []
        faults: dict[str, Fault] = {}
        for name in names:
            try:
                if await self.policies.lists(context, self._tools[name].spec):
                    listed.append(name)
            except Fault as fault:
                faults[name] = fault
        if faults:
            first, *others = faults
            more = f" and {len(others)} more" if others else ""
            log_fault(f"asking the policies whether to list {first}{more}", faults[first])
        return listed

    @property
    def names(self) -> frozenset[str]:
        """Names of the tools, including the disabled ones."""
        return frozenset(self._tools.keys() | self._disabled.keys())

    def switch(self, name: str, *, on: bool) -> bool:
        """Enable or disable a tool. A disabled one is neither listed nor found. False if it was so already."""
        source, target = (self._disabled, self._tools) if on else (self._tools, self._disabled)
        if name not in source:
            return False
        target[name] = source.pop(name)
        return True

    @property
    def all_names(self) -> frozenset[str]:
        """Names of all tools, including the withheld ones."""
        return self._withheld | self._tools.keys()

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        """All specs, sorted by name."""
        return {name: self._tools[name].spec for name in sorted(self._tools)}

    def of_function(self, function: Callable[..., object]) -> Registered | None:
        """Tool of exactly this function; None if there is none, or if the function is not hashable."""
        try:
            return self._functions.get(function)
        except TypeError:  # the method of an object that cannot be hashed, or no function at all
            return None

    def get(self, name: str) -> Registered | None:
        """Tool of that name for any caller; None if there is none."""
        return self._tools.get(name)

    def find(self, name: str, only: frozenset[str] | None) -> Registered | None:
        """The tool of that name; None when there is none.

        Args:
            name: As the caller sent it.
            only: The names that the caller's view has, None for all.

        Raises:
            AgentError: ``TOOL_NOT_PERMITTED``, if the view leaves it out.
        """
        found = self._tools.get(name)
        if found is None and name not in self._withheld:
            return None
        if found is None or (only is not None and name not in only):
            raise AgentError.standard("TOOL_NOT_PERMITTED", f"{name} is not among the tools of this agent")
        return found

    async def unknown(self, name: str, only: frozenset[str] | None, context: AgentContext) -> AgentError:
        """``TOOL_NOT_FOUND``, with suggestions from the tools that are listed for the caller."""
        near = nearby(name, self._tools if only is None else [tool for tool in self._tools if tool in only])
        return unknown_tool(name, await self._listed(near, context) if self.policies.exist else near)

    def catalog(self, names: tuple[str, ...]) -> Catalog:
        """The catalog of some tools, `names` sorted; rendered once for each set of names."""
        catalog = self._catalogs.get(names)
        if catalog is None:
            if len(self._catalogs) >= _MOST_CATALOGS:
                del self._catalogs[next(iter(self._catalogs))]
            catalog = self._catalogs[names] = _render(self._tools[name].spec for name in names)
        return catalog


_MOST_CATALOGS = 64
"""Limit for cached catalogs: one for each set of visible tools, typically one for each role."""


def _render(specs: Iterable[ToolSpec]) -> Catalog:
    tools = msgspec.convert(tuple(specs), tuple[PublicSpec, ...], from_attributes=True)
    document = msgspec.json.encode({"tools": tools})
    return Catalog(tools=tools, document=document, version=hashlib.sha256(document).hexdigest())
