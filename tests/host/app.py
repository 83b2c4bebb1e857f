"""An application for hosts of all kinds."""

from __future__ import annotations

import contextvars
import threading

import trio

from carmy_engine import AgentContext, App, ExecutionRequest, State

caller = contextvars.ContextVar("caller", default="nobody")


class Book:
    """What the tools have done."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.started = threading.Event()


def make_app(book: Book | None = None) -> App:
    """The application."""
    app = App("shop").state(Book() if book is None else book)

    @app.tool(effect="none", parallel_safe=True)
    async def add(left: int, right: int = 1) -> int:
        """Add."""
        return left + right

    @app.tool(effect="none", parallel_safe=True)
    def in_thread() -> str:
        """Name the thread."""
        return threading.current_thread().name

    @app.tool(effect="read", parallel_safe=True)
    async def who(ctx: AgentContext) -> list[str | None]:
        """Say who calls."""
        return [ctx.principal, caller.get()]

    @app.tool(effect="write", parallel_safe=True)
    async def sleep(book: State[Book]) -> None:
        """Wait to be cancelled."""
        try:
            book.started.set()
            await trio.sleep_forever()
        finally:
            await trio.lowlevel.checkpoint()
            book.lines.append("cleaned up")

    @app.tool(effect="read", parallel_safe=True)
    async def parts(ctx: AgentContext, book: State[Book], count: int, size: int) -> None:
        """Send parts."""
        for number in range(count):
            await ctx.progress.partial("x" * size)
            book.lines.append(str(number))

    @app.tool(effect="destructive")
    async def clear() -> None:
        """Forget."""

    return app


def request(tool: str, **arguments: object) -> ExecutionRequest:
    """A request."""
    return ExecutionRequest(tool=tool, arguments=arguments)


def trio_threads() -> list[threading.Thread]:
    """The threads of engines that are open."""
    return [thread for thread in threading.enumerate() if thread.name == "carmy-trio"]
