"""Tools of one parameter or one result, made on the spot."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from carmy_engine import tool
from carmy_engine._model.compiled_tool import TakesLong
from carmy_engine._schema.work import Work
from carmy_engine.errors import AgentError
from carmy_engine.testing import CompiledTool, compile_tool

Taking = Callable[..., CompiledTool]


def taking_tool(annotation: Any, default: Any = inspect.Parameter.empty, name: str = "x") -> CompiledTool:
    """A tool with one parameter."""

    def take(**_: Any) -> None: ...

    kind = inspect.Parameter.KEYWORD_ONLY
    parameter = inspect.Parameter(name, kind, default=default, annotation=annotation)
    take.__signature__ = inspect.Signature([parameter], return_annotation=None)  # type: ignore[attr-defined]
    take.__annotations__ = {name: annotation, "return": None}
    return compile_tool(tool(effect="none", register=False)(take), {})


def giving_tool(annotation: Any, **attributes: Any) -> CompiledTool:
    """A tool with one result."""

    def give() -> Any: ...

    give.__annotations__ = {"return": annotation}
    return compile_tool(tool(effect="none", register=False, **attributes)(give), {})


def parsed(taken: CompiledTool, data: bytes) -> dict[str, Any]:
    """What the function would get, in the order of the pipeline: long arguments are checked in steps."""
    try:
        return taken.parse(data)
    except TakesLong as long:
        check = long.check
    return check(Work())


def rendered(giving: CompiledTool, value: Any) -> bytes:
    """The output of a call, in the order of the pipeline: a long output is checked in steps."""
    try:
        return giving.render(value)
    except TakesLong as long:
        check = long.check
    data: bytes = check(Work(is_output=True))
    return data


class Taker:
    """Sends JSON to a parameter called ``x``."""

    def __call__(self, annotation: Any, json: str, default: Any = inspect.Parameter.empty) -> Any:
        """What the function would get."""
        return parsed(taking_tool(annotation, default), b'{"x":%s}' % json.encode())["x"]

    def whole(self, annotation: Any, json: str, default: Any = inspect.Parameter.empty) -> Any:
        """The same with all of the arguments given."""
        return taking_tool(annotation, default).parse(json.encode())["x"]

    def refused(self, annotation: Any, json: str, *, whole: bool = False) -> str:
        """The message of the refusal, after checking its shape."""
        with pytest.raises(AgentError) as caught:
            (self.whole if whole else self)(annotation, json)
        error = caught.value
        assert error.code == "INVALID_ARGUMENTS"
        assert error.recoverable
        assert not error.retryable
        assert error.details is not None
        assert all({"path", "code", "message"} <= set(problem) for problem in error.details["problems"])
        # Y7: neither pydantic's error nor the values inside it stay alive.
        assert error.__cause__ is None
        assert error.__context__ is None
        return error.message


class Giver:
    """Returns values from a tool."""

    def __call__(self, annotation: Any, value: Any) -> bytes:
        """The rendered value."""
        return rendered(giving_tool(annotation), value)

    def refused(self, annotation: Any, value: Any) -> str:
        """The message of ``INVALID_OUTPUT``, without its beginning."""
        with pytest.raises(AgentError) as caught:
            rendered(giving_tool(annotation), value)
        assert caught.value.code == "INVALID_OUTPUT"
        begin = "the tool ran, but its output does not fit its schema: "
        assert caught.value.message.startswith(begin)
        return caught.value.message.removeprefix(begin)


@pytest.fixture
def take() -> Taker:
    return Taker()


@pytest.fixture
def give() -> Giver:
    return Giver()


@pytest.fixture
def taking() -> Taking:
    return taking_tool


@pytest.fixture
def giving() -> Taking:
    return giving_tool
