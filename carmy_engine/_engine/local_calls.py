"""In-process calls of an engine: typed calls of tools, and the calls of models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import lru_cache
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

import msgspec
import trio

from .._execution.execution import Caller
from .._execution.model_calls import ModelCall, ModelResult, request_id_of, request_of, run_side_by_side
from .._model.compiled_tool import CompiledTool, TakesLong
from .._model.context import AgentContext
from .._model.errors import AgentError, DeclarationError
from .._model.request import ExecutionRequest
from .._model.result import ExecutionResult
from .._schema.json_form import encode_arguments
from .._schema.work import Work
from .._tools.declaration import ToolDeclaration, declaration_of, returns_of
from .._tools.tool_objects import reader_of_type
from ..providers import Format, Provider, provider
from .pipeline import Pipeline

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class LocalCalls:
    """Calls of an engine that are available in the same process only."""

    _caller: Caller

    def _opened(self) -> Pipeline:
        """The pipeline, as long as the engine is open."""
        raise NotImplementedError

    # The first matching overload counts: a tool may be async, and may take a context first.
    @overload
    async def call(self, tool: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def call(
        self, tool: Callable[Concatenate[AgentContext, P], Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    async def call(self, tool: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def call(
        self, tool: Callable[Concatenate[AgentContext, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    async def call(self, tool: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a tool like a function, through all steps of the pipeline.

        ::

            products = await engine.call(search, query="mouse")  # list[Product]

        Arguments are checked like those of a remote call. The result is the return value of the tool, in the type of its return
        annotation.

        Type checkers use the signature of the tool, without a leading context. Other injected parameters need the default
        `INJECTED`.

        Args:
            tool: A function declared as a tool, or the method of an object, that this engine has.
            *args: Arguments in the order of the function, without injected parameters.
            **kwargs: Arguments by name.

        Raises:
            AgentError: What the execution ended with.
            DeclarationError: It is not a tool, or the engine has another one of this name.
            TypeError: More positional arguments than the tool has, or one given twice.
            trio.Cancelled: The caller's own scope was cancelled.
        """
        pipeline = self._opened()
        found = pipeline.registry.of_function(tool)
        name = _name_of(tool, pipeline) if found is None else found.spec.name
        arguments = kwargs if found is None else _arguments(found.tool, args, kwargs)
        returned: list[Any] = []
        request = ExecutionRequest(tool=name, arguments=arguments)
        result = await pipeline.run(request, self._caller, returned=returned.append)
        if result.error is not None or found is None:
            return result.unwrap()
        if found.tool.place is not None:  # the value is in another process
            return await reader_of_output(tool)(result)
        return returned[0] if found.tool.promised is None else found.tool.promised(returned[0])

    def typed_request(
        self, tool: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[ExecutionRequest, Callable[[ExecutionResult], Awaitable[Any]]]:
        """The request of a `call`, and the function from its result to the value of the call.

        The value is read from the JSON of the result, so that a replay gives an equal one.

        Raises:
            DeclarationError: It is not a tool, or the engine has another one of this name.
            TypeError: More positional arguments than the tool has, or one given twice.
        """
        pipeline = self._opened()
        found = pipeline.registry.of_function(tool)
        if found is None:
            return ExecutionRequest(tool=_name_of(tool, pipeline), arguments=kwargs), _unwrapped
        read = reader_of_output(tool)
        return ExecutionRequest(tool=found.spec.name, arguments=_arguments(found.tool, args, kwargs)), read

    def provider(self, format: Format) -> Provider:  # noqa: A002 - the usual name
        """The tools that this caller may use, in one provider's format: the same as the catalog lists, in its order.

        Raises:
            DeclarationError: There is no such format; or a policy has to wait for its answer, which this cannot.
            ClosedError: The engine's block has ended.
        """
        registry = self._opened().registry
        specs = registry.specs
        visible = _at_once(registry.visible_to(self._caller.context, self._caller.only))
        return provider(format, [specs[name] for name in visible], registry.all_names - set(visible))

    async def run_calls(self, calls: Iterable[ModelCall]) -> list[ModelResult]:
        """Run the calls of one model turn concurrently; return one result for each, in their order.

        The identity of a call is the bound run and its ``call_id``: a repeated turn repeats no effect. Calls to a
        tool whose calls take turns keep the order of the model.

        Args:
            calls: From a `carmy_engine.providers` format's ``parse``.

        Raises:
            trio.Cancelled: The caller's own scope was cancelled; so were all calls.
            ClosedError: The engine's block has ended.
        """
        pipeline = self._opened()
        context = self._caller.context

        async def run_one(call: ModelCall, repeated: int) -> ExecutionResult:
            request_id = request_id_of(call, thread_id=context.thread_id, run_id=context.run_id, repeated=repeated)
            bound = msgspec.structs.replace(context, call_id=call.call_id)
            caller = msgspec.structs.replace(self._caller, context=bound)
            # The engine refuses an unreadable call, so that the records include it.
            unreadable = None if call.problem is None else AgentError.of(call.problem)
            return await pipeline.run(request_of(call, request_id), caller, unreadable=unreadable)

        return await run_side_by_side([*calls], run_one, self.takes_turns)

    def takes_turns(self, name: str) -> bool:
        """True for a tool whose calls run one after the other."""
        found = self._opened().registry.get(name)
        return found is not None and found.turn is not None


def reader_of_output(tool: Callable[..., Any]) -> Callable[[ExecutionResult], Awaitable[Any]]:
    """The function from a result of a tool to a value of the tool's return annotation."""
    returns = returns_of(tool)
    if returns is None or returns is type(None):
        return _unwrapped
    try:
        parse = _reader_of_type(returns)
    except DeclarationError:  # content, which tools return and do not take
        return _unwrapped

    async def read(result: ExecutionResult) -> Any:
        if result.error is not None or result.data_json is None:
            return result.unwrap()
        try:
            return parse(result.data_json)
        except TakesLong as long:
            check = long.check
        return await trio.to_thread.run_sync(check, Work(), abandon_on_cancel=True)

    return read


_cached_reader = lru_cache(maxsize=1000)(reader_of_type)


def _reader_of_type(returns: Any) -> Callable[[bytes], Any]:
    try:
        hash(returns)
    except TypeError:
        return reader_of_type(returns)
    return _cached_reader(returns)


async def _unwrapped(result: ExecutionResult) -> Any:
    return result.unwrap()


def _at_once(listing: Coroutine[Any, Any, T]) -> T:
    """Result of a coroutine that returns without waiting.

    Raises:
        DeclarationError: It waits.
    """
    try:
        listing.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    listing.close()
    raise DeclarationError(
        "engine.provider cannot wait for an async policy: write provider(format, await engine.catalog()) instead,"
        " with provider from carmy_engine.providers"
    )


def _name_of(tool: object, pipeline: Pipeline) -> str:
    """Name of a tool that this engine does not have; a request for it fails with the right error.

    Raises:
        DeclarationError: It is not a tool, or the engine has another one of this name.
    """
    declaration = declaration_of(tool)
    if not isinstance(declaration, ToolDeclaration):
        raise DeclarationError(
            f"call takes functions; run the {type(tool).__name__} object with execute(ExecutionRequest(tool=...))"
        )
    if pipeline.registry.get(declaration.name) is not None:
        raise DeclarationError(
            f"the tool {declaration.name!r} of this engine is another one than the function of {declaration.location}"
        )
    return declaration.name


def _arguments(tool: CompiledTool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | msgspec.Raw:
    """The arguments of a call, as a request has them."""
    if not args and tool.input is None:
        return kwargs
    name = tool.spec.name
    if len(args) > len(tool.parameters):
        raise TypeError(f"{name} takes {len(tool.parameters)} positional arguments, and {len(args)} were given")
    positional = dict(zip(tool.parameters, args, strict=False))
    if twice := positional.keys() & kwargs.keys():
        raise TypeError(f"{name} got two values for {', '.join(sorted(twice))}")
    arguments = {**positional, **kwargs}
    if tool.input is None or arguments.keys() != {tool.input}:
        return arguments
    # The input as a whole: its JSON is the value in {"":...}.
    return msgspec.Raw(encode_arguments({"": arguments[tool.input]})[4:-1])
