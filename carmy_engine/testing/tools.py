"""Scripted tools: the arguments of a call are their script, so a test can put an engine into any situation.

Two kinds. The *actors* share one behaviour and differ in what they declare: ``read``, ``write``, ``thread_write`` … (see
`ACTORS`). Each counts an effect under the call's ``tag`` and then does the action ``then``. The others are small and
plain: ``echo``, ``sleep``, ``progress``. Everything that a test has to control or to learn is reached through tools as well
(``open_gate``, ``arrived``, ``effects`` …), so that it works the same when the engine lives in another process.

    app = App("scripted")
    app.add(*SCRIPTED_TOOLS).state(Stage())
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal, cast

import trio

from .._model.compiled_tool import CompiledTool
from .._model.context import AgentContext
from .._model.effect import Effect
from .._model.errors import AgentError
from .._tools.declaration import State, compile_tool, declaration_of, tool
from ._stage import Stage

MAX_OUTPUT_BYTES = 10_000
"""Of the actors' outputs; ``then="large_output"`` returns more."""

MAX_WAITING = 2
"""Calls that may wait for a turn with one of the serial actors."""

Then = Literal[
    "return",
    "wait",
    "wait_and_clean_up",
    "wait_stubbornly",
    "wait_then_retryable",
    "wait_in_nursery",
    "retryable",
    "error",
    "crash",
    "crash_in_nursery",
    "error_in_nursery",
    "exit",
    "interrupt",
    "own_base_exception",
    "invalid_output",
    "large_output",
]
"""What an actor does after it has counted its effect.

``wait`` holds at the gate and then returns. ``wait_and_clean_up`` awaits once more when it is cancelled, then counts
``<tag>:cleaned``. ``wait_stubbornly`` returns ``"late"`` instead of giving in to a cancel. ``retryable`` and ``error``
raise an `AgentError`; the others fail as their names say.
"""


class ScriptedError(Exception):
    """What ``then="crash"`` raises. Its text must never reach a caller."""


class ScriptedBaseError(BaseException):
    """Not an `Exception`: what ``then="own_base_exception"`` raises."""


SECRET = "hunter2"  # noqa: S105 - a word that tests look for in answers, where it must not be
"""Part of the text of every undeclared exception of a scripted tool."""


def _actor(
    name: str,
    effect: Effect | Literal["none", "read", "write", "external_write", "destructive"],
    *,
    idempotent: bool = False,
    serial: bool = False,
    thread: bool = False,
) -> Callable[..., Any]:
    """Declare one actor."""

    async def act(stage: State[Stage], ctx: AgentContext, tag: str = "", then: Then = "return", gate: str = "") -> str:
        stage.effect(tag)
        if then in ("wait", "wait_then_retryable"):
            await stage.pass_gate(gate)
        elif then == "wait_in_nursery":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                await stage.pass_gate(gate)
                nursery.cancel_scope.cancel()
        elif then == "wait_and_clean_up":
            try:
                await stage.pass_gate(gate)
            finally:
                await trio.lowlevel.checkpoint()
                stage.effect(tag + ":cleaned")
        elif then == "wait_stubbornly":
            try:
                await stage.pass_gate(gate)
            except trio.Cancelled:
                return "late"  # swallowing a cancel is what this ending is about
        elif then in ("crash_in_nursery", "error_in_nursery"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                async with trio.open_nursery() as inner:
                    inner.start_soon(trio.sleep_forever)
                    return _end(then.removesuffix("_in_nursery"))
        return _end(then)

    def act_in_thread(
        stage: State[Stage], ctx: AgentContext, tag: str = "", then: Then = "return", gate: str = ""
    ) -> str:
        stage.effect(tag)
        if then in ("wait", "wait_then_retryable"):
            stage.pass_gate_in_thread(gate)
        elif then == "wait_and_clean_up":
            stage.pass_gate_in_thread(gate)
            ctx.cancellation.check()
        return _end(then)

    declare = tool(
        name=name,
        description=f"Count an effect, then do what is asked. Declared as {name.replace('_', ' ')}.",
        effect=effect,
        idempotent=idempotent,
        parallel_safe=not serial,
        max_waiting=MAX_WAITING,
        max_output_bytes=MAX_OUTPUT_BYTES,
        register=False,
    )
    return declare(act_in_thread if thread else act)


def _end(then: str) -> str:
    """The endings that need no await."""
    if then.endswith("retryable"):
        raise AgentError("TRY_LATER", "not now", "capacity", retryable=True, retry_after=2)
    if then == "error":
        raise AgentError("OUT_OF_STOCK", "none left", "conflict", details={"left": 0})
    if then == "crash":
        raise ScriptedError(SECRET)
    if then == "exit":
        sys.exit(SECRET)
    if then == "interrupt":
        raise KeyboardInterrupt(SECRET)
    if then == "own_base_exception":
        raise ScriptedBaseError(SECRET)
    if then == "invalid_output":
        broken: Any = object()
        return cast("str", broken)
    if then == "large_output":
        return "x" * MAX_OUTPUT_BYTES  # and two quotes
    return "done"


ACTORS: tuple[Callable[..., Any], ...] = (
    _actor("none", "none"),
    _actor("read", "read"),
    _actor("write", "write"),
    _actor("idempotent_write", "write", idempotent=True),
    _actor("external_write", "external_write"),
    _actor("idempotent_external_write", "external_write", idempotent=True),
    _actor("destructive", "destructive"),
    _actor("serial_read", "read", serial=True),
    _actor("serial_write", "write", serial=True),
    _actor("thread_read", "read", thread=True),
    _actor("thread_write", "write", thread=True),
    _actor("thread_idempotent_write", "write", idempotent=True, thread=True),
    _actor("serial_thread_write", "write", serial=True, thread=True),
)
"""One behaviour, every declaration that makes a difference. Take ``tag``, ``then`` (see `Then`) and ``gate``."""


@tool(effect="read", idempotent=True, parallel_safe=True, register=False)
async def echo(text: str, times: int = 1) -> str:
    """Repeat a text.

    Args:
        text: What to say.
        times: How often.
    """
    return text * times


@tool(effect="read", parallel_safe=True, register=False)
async def sleep(seconds: float) -> str:
    """Wait on the event loop."""
    await trio.sleep(seconds)
    return "slept"


@tool(effect="read", parallel_safe=True, register=False)
def block(seconds: float) -> str:
    """Wait in a worker thread, where nothing can interrupt it."""
    time.sleep(seconds)
    return "blocked"


@tool(effect="read", parallel_safe=True, register=False)
async def spin(seconds: float) -> str:
    """Hold the event loop."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    return "spun"


@tool(effect="write", parallel_safe=True, register=False)
async def effect(stage: State[Stage], tag: str) -> int:
    """Count an effect; answer how often it has happened."""
    return stage.effect(tag)


@tool(effect="read", parallel_safe=True, register=False)
async def progress(ctx: AgentContext, count: int, message: str = "") -> int:
    """Report progress `count` times, letting the reader run in between."""
    for step in range(1, count + 1):
        ctx.progress.report(step, count, message)
        await trio.lowlevel.checkpoint()
    return count


@tool(effect="read", parallel_safe=True, register=False)
def thread_progress(ctx: AgentContext, count: int) -> int:
    """Send `count` parts of the result from a worker thread, each after a report."""
    for step in range(1, count + 1):
        ctx.progress.report(step, count)
        ctx.progress.partial_from_thread(step)
    return count


@tool(effect="read", parallel_safe=True, register=False)
async def partials(ctx: AgentContext, count: int, size: int = 10) -> int:
    """Send `count` parts of the result, each a text of `size` characters that begins with its number."""
    for step in range(count):
        await ctx.progress.partial(f"{step}:".ljust(size, "."))
    return count


@tool(effect="none", parallel_safe=True, register=False)
async def ret(kind: Literal["null", "nan", "infinity", "large_integer", "nested", "text", "object"]) -> Any:
    """Return a value of some kind."""
    return _VALUES[kind]


_VALUES: dict[str, Any] = {
    "null": None,
    "nan": float("nan"),
    "infinity": float("inf"),
    "large_integer": 2**60 + 1,
    "nested": {"a": [1, 2.5, {"b": [True, None]}]},
    "text": 'é "quoted" \u2028 \U0001f600',
    "object": object(),
}


@tool(effect="read", parallel_safe=True, register=False)
async def whoami(ctx: AgentContext) -> dict[str, Any]:
    """Answer with the trusted context of the call."""
    return {
        "principal": ctx.principal,
        "session": ctx.session,
        "permissions": sorted(ctx.permissions),
        "transport": ctx.transport,
        "execution_id": ctx.execution_id,
        "request_id": ctx.request_id,
        "remaining": ctx.remaining(),
    }


@tool(effect="none", parallel_safe=True, register=False)
async def open_gate(stage: State[Stage], gate: str) -> None:
    """Open a gate for good."""
    stage.open(gate)


@tool(effect="none", parallel_safe=True, register=False)
async def arrived(stage: State[Stage], gate: str, calls: int = 1) -> int:
    """Wait until so many calls have come to a gate; answer how many did."""
    await stage.until(lambda: stage.arrived(gate) >= calls)
    return stage.arrived(gate)


@tool(effect="none", parallel_safe=True, register=False)
async def left(stage: State[Stage], gate: str, calls: int = 1) -> int:
    """Wait until so many calls have left a gate, let through or cancelled; answer how many did."""
    await stage.until(lambda: stage.left(gate) >= calls)
    return stage.left(gate)


@tool(effect="none", parallel_safe=True, register=False)
async def most_inside(stage: State[Stage], gate: str) -> int:
    """The largest number of calls that were at a gate at the same time."""
    return stage.most_inside(gate)


@tool(effect="none", parallel_safe=True, register=False)
async def effects(stage: State[Stage], tag: str, at_least: int = 0) -> int:
    """Wait until an effect has happened so often; answer how often it did."""
    await stage.until(lambda: stage.effects(tag) >= at_least)
    return stage.effects(tag)


PLAIN_TOOLS: tuple[Callable[..., Any], ...] = (
    echo,
    sleep,
    block,
    spin,
    effect,
    progress,
    thread_progress,
    partials,
    ret,
    whoami,
    open_gate,
    arrived,
    left,
    most_inside,
    effects,
)
"""Tools that do one thing, and those that control and inspect the stage."""

SCRIPTED_TOOLS: tuple[Callable[..., Any], ...] = (*ACTORS, *PLAIN_TOOLS)
"""All of them; what `check_executor` needs."""


def compile_scripted(stage: Stage, names: Iterable[str] | None = None) -> list[CompiledTool]:
    """Compile scripted tools for ``open_engine``.

    Args:
        stage: What they act on.
        names: Which ones; None for all.
    """
    wanted = None if names is None else set(names)
    return [
        compile_tool(function, {Stage: stage})
        for function in SCRIPTED_TOOLS
        if wanted is None or getattr(declaration_of(function), "name", None) in wanted
    ]
