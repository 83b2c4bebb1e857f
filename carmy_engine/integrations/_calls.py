"""What the frameworks have in common: names, schemas and texts for models, and the calls."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from .._execution.model_calls import ModelCall, ModelResult, request_id_of, request_of
from .._model.context import AgentContext
from .._model.effect import Confirmation, Effect
from .._model.errors import AgentError, DeclarationError, OutcomeUnknownError
from .._model.request import ExecutionRequest
from .._model.result import ExecutionResult
from .._model.spec import Catalog, PublicSpec
from ..providers import provider


class Calls:
    """The tools of one executor, for the calls of a framework.

    Args:
        executor: Of `carmy_engine.aio` or `carmy_engine.blocking`.
        catalog: The tools to offer: ``await executor.catalog()``.
        run_id: The scope in which a model's ids of calls are unique, where the framework has none: a repeated id in it gets the
            stored answer. None for a scope of this object alone.
    """

    def __init__(self, executor: Any, catalog: Catalog, run_id: str | None) -> None:
        if not callable(getattr(executor, "execute", None)):
            raise DeclarationError(
                f"a {type(executor).__name__} object is not an executor: give an engine or a client of carmy_engine.aio"
            )
        self._executor = executor
        self._run_id = secrets.token_hex(8) if run_id is None else run_id
        self._provider = provider("openai-responses", catalog)
        self.is_blocking = not inspect.iscoroutinefunction(executor.execute)
        self.specs: Mapping[str, PublicSpec] = {self._provider.name_for(spec.name): spec for spec in catalog.tools}
        """By the name that models get: 1-64 ASCII letters, digits, ``_`` and ``-``."""
        self.strict: Mapping[str, Mapping[str, Any]] = {tool["name"]: tool for tool in self._provider.tools}
        """The tools as the Responses API of OpenAI takes them, by this name."""

    def needs_confirmation(self, name: str) -> bool:
        """True if a call needs a person's confirmation, and the host has not granted it to the executor."""
        spec = self.specs[name]
        if spec.confirmation is not Confirmation.REQUIRED and spec.effect is not Effect.DESTRUCTIVE:
            return False
        context = getattr(self._executor, "context", None)
        return not (isinstance(context, AgentContext) and context.allows(f"confirm:{spec.name}"))

    def call(self, name: str, arguments: object, call_id: str | None) -> ModelCall:
        """One call of a model.

        Args:
            name: As the model wrote it.
            arguments: A mapping, or JSON text.
            call_id: The model's id of the call; None where the framework has none.
        """
        return self._provider.call(name, arguments, call_id)

    async def run(self, call: ModelCall, *, scope: str | None = None, is_confirmed: bool = False) -> ExecutionResult:
        """Run a call under asyncio. Cancelling the task cancels the execution.

        Args:
            call: The call.
            scope: The framework's own run, in which ids of calls are unique.
            is_confirmed: A person has confirmed this call.
        """
        request = self._request(call, scope)
        if isinstance(request, ExecutionResult):
            return request
        executor = self._confirmed(call) if is_confirmed else self._executor
        try:
            if self.is_blocking:
                return await asyncio.to_thread(executor.execute, request)
            return cast("ExecutionResult", await executor.execute(request))
        except OutcomeUnknownError as lost:
            return _lost(lost)

    def run_blocking(self, call: ModelCall, *, scope: str | None = None, is_confirmed: bool = False) -> ExecutionResult:
        """`run` for the plain calls of a framework.

        Raises:
            DeclarationError: The executor is one of asyncio.
        """
        if not self.is_blocking:
            raise DeclarationError(
                "these tools belong to an asyncio executor: use the async interface of the framework, or make the tools from an"
                " executor of carmy_engine.blocking"
            )
        request = self._request(call, scope)
        if isinstance(request, ExecutionResult):
            return request
        executor = self._confirmed(call) if is_confirmed else self._executor
        try:
            return cast("ExecutionResult", executor.execute(request))
        except OutcomeUnknownError as lost:
            return _lost(lost)

    def text(self, call: ModelCall, result: ExecutionResult) -> str:
        """The result in words for the model: the output, or the way to repair the call."""
        return self._provider.text(ModelResult(call=call, result=result))

    def _request(self, call: ModelCall, scope: str | None) -> ExecutionRequest | ExecutionResult:
        if call.problem is not None:
            return ExecutionResult(execution_id="", error=call.problem)
        if call.generated:
            return ExecutionRequest(tool=call.tool, arguments=call.arguments)
        run_id = self._run_id if scope is None else scope
        return request_of(call, request_id_of(call, thread_id=None, run_id=run_id))

    def _confirmed(self, call: ModelCall) -> Any:
        """The executor for a call that a person has confirmed; the same one if nothing can be granted to it."""
        bind, context = getattr(self._executor, "bind", None), getattr(self._executor, "context", None)
        if bind is None or not isinstance(context, AgentContext):
            return self._executor
        return bind(permissions={*context.permissions, f"confirm:{call.tool}"})


def _lost(problem: OutcomeUnknownError) -> ExecutionResult:
    """The result for a model of a call whose outcome is not known."""
    error = AgentError.standard("EXECUTION_UNCERTAIN", str(problem), details={"state": "interrupted"})
    return ExecutionResult(execution_id="", error=error.info, exception=problem)


def plain_schema(spec: PublicSpec) -> dict[str, Any]:
    """The input schema as plain Python data."""
    found: dict[str, Any] = msgspec.to_builtins(spec.input_schema)
    return found
