"""An application that raises wherever code of an author or a host runs: the argument `how` names the escape, ``no`` none."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
import trio
import trio.testing
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    computed_field,
    field_serializer,
    field_validator,
    model_validator,
)

from carmy_engine import (
    AgentContext,
    App,
    Catalog,
    Confirmation,
    Effect,
    ExecutionCompleted,
    ExecutionRequest,
    ExecutionResult,
    PublicSpec,
    Settings,
    State,
    ToolSpec,
    Unknown,
    tool,
)
from carmy_engine.abc import Credentials, Reservation, ReservationState
from carmy_engine.stores.memory import MemoryStore
from tests.boundary.escapes import ESCAPES, made

T = TypeVar("T")

FINE = "fine"
"""What every tool returns if it raises nothing."""

HOWS = (*ESCAPES, "no")


def escape(how: str) -> str:
    """Raise the escape of this name, if there is one."""
    if how in ESCAPES:
        raise made(how)
    return FINE


async def escape_later(how: str) -> str:
    """The same, after a wait."""
    await trio.lowlevel.checkpoint()
    return escape(how)


class Store(MemoryStore):
    """A store that raises, or finds an interrupted attempt, for some ids of requests."""

    async def reserve(self, reservation: Reservation) -> Reservation | None:
        kind, _, how = reservation.identity.request_id.partition(":")
        if kind == "reserve":
            escape(how)
        if kind == "interrupted":
            return msgspec.structs.replace(reservation, state=ReservationState.INTERRUPTED, finished_at=0.0)
        return await super().reserve(reservation)

    async def complete(self, identity: Any, execution_id: str, outcome: Any, finished_at: float) -> bool:
        kind, _, how = identity.request_id.partition(":")
        done = await super().complete(identity, execution_id, outcome, finished_at)
        if kind == "complete":
            escape(how)
        return done


class Books(BaseModel):
    """What a process holds. The same before and after a call, if nothing leaks."""

    tasks: int
    descriptors: int
    reserved: int


@tool(effect="none", parallel_safe=True, register=False)
async def books(store: State[Store]) -> Books:
    """Count what there is, once nothing moves."""
    await trio.testing.wait_all_tasks_blocked()
    return Books(
        tasks=trio.lowlevel.current_statistics().tasks_living,
        descriptors=len(os.listdir("/proc/self/fd")),
        reserved=len(await store.entries(state=ReservationState.RUNNING, tool=None, limit=100)),
    )


# The tool itself. Their calls take turns: a turn that is not given back holds the next call up.


@tool(effect="write", register=False)
async def in_coroutine(how: str) -> str:
    """Raise at once."""
    return escape(how)


@tool(effect="write", register=False)
async def after_a_wait(how: str) -> str:
    """Raise after a wait."""
    return await escape_later(how)


@tool(effect="write", register=False)
def in_thread(how: str) -> str:
    """Raise in a worker thread of the engine."""
    return escape(how)


@tool(effect="write", register=False)
async def in_nursery(how: str) -> str:
    """Raise in one of two tasks of a nursery."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(escape_later, how)
        nursery.start_soon(trio.lowlevel.checkpoint)
    return FINE


@tool(effect="write", register=False)
async def in_nested_nurseries(how: str) -> str:
    """Raise in the body of a nursery inside another one, beside tasks that wait."""
    async with trio.open_nursery() as outer:
        outer.start_soon(trio.sleep_forever)
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            await escape_later(how)
            inner.cancel_scope.cancel()
        outer.cancel_scope.cancel()
    return FINE


@tool(effect="write", register=False)
async def in_scope(how: str) -> str:
    """Raise inside a scope of its own."""
    with trio.move_on_after(1000):
        await escape_later(how)
    return FINE


async def _numbers(how: str) -> AsyncIterator[int]:
    yield 0
    await escape_later(how)
    yield 1


async def _numbers_with_end(how: str) -> AsyncIterator[int]:
    try:
        yield 0
    finally:
        await escape_later(how)


@asynccontextmanager
async def _block(how: str) -> AsyncIterator[None]:
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            yield
            nursery.cancel_scope.cancel()
    finally:
        await trio.lowlevel.checkpoint()
        escape(how)


@tool(effect="write", register=False)
async def in_generator(how: str) -> str:
    """Raise inside an async generator that is being read."""
    async for _ in _numbers(how):
        pass
    return FINE


@tool(effect="write", register=False)
async def in_closed_generator(how: str) -> str:
    """Raise out of an async generator that is closed before its end."""
    numbers: Any = _numbers_with_end(how)
    await anext(numbers)
    await numbers.aclose()
    return FINE


async def _numbers_of_tasks(how: str) -> AsyncIterator[int]:
    async with _block(how):
        yield 0
        yield 1


@tool(effect="write", register=False)
async def in_abandoned_generator(how: str) -> str:
    """Raise in an async generator with a nursery that is left by ``break``: trio closes it in a task of its own."""
    if how in ESCAPES:
        async for _ in _numbers_of_tasks(how):
            break
        await trio.testing.wait_all_tasks_blocked()
    return FINE


@tool(effect="write", register=False)
async def in_block(how: str) -> str:
    """Raise in a block that an async generator and a nursery make, and in its clean-up."""
    async with _block("no"):
        await escape_later(how)
    return FINE


@tool(effect="write", register=False)
async def in_clean_up(how: str) -> str:
    """Raise in the clean-up of such a block."""
    async with _block(how):
        await trio.lowlevel.checkpoint()
    return FINE


@tool(effect="write", register=False)
async def in_thread_of_its_own(how: str) -> str:
    """Raise in a thread that an async tool waits for."""
    return await trio.to_thread.run_sync(escape, how)


@tool(effect="write", register=False, backend="asyncio")
async def in_asyncio(how: str) -> str:
    """Raise at once in a task of asyncio."""
    return escape(how)


async def escape_in_asyncio(how: str) -> str:
    """Raise in a loop of asyncio, after a wait."""
    await asyncio.sleep(0)
    return escape(how)


@tool(effect="write", register=False, backend="asyncio")
async def in_asyncio_later(how: str, ctx: AgentContext) -> str:
    """Raise in a task of asyncio after a wait and a part of the result."""
    await ctx.progress.partial(how)
    return await escape_in_asyncio(how)


@tool(effect="write", register=False, backend="asyncio")
async def in_asyncio_future(how: str) -> str:
    """Raise what another task has put into a future."""
    if how == "asyncio.CancelledError":
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
    return escape(how)


@tool(effect="write", register=False, backend="asyncio")
async def in_clean_up_of_asyncio(how: str) -> str:
    """Raise while another exception passes."""
    try:
        raise LookupError
    except LookupError:
        return await escape_in_asyncio(how)


@tool(effect="write", register=False)
def from_thread(how: str) -> str:
    """Raise in the loop, which a plain tool waits for in its thread."""
    return trio.from_thread.run(escape_later, how)


@tool(effect="write", register=False)
async def with_context(how: str, ctx: AgentContext) -> str:
    """Report, and raise."""
    ctx.progress.report(1, 2, "half of it")
    await ctx.progress.partial("part")
    return await escape_later(how)


_HOW = {"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]}


class MadeByHand:
    """A tool without a function: it raises in ``execute``."""

    spec = ToolSpec(
        name="made_by_hand",
        description="Raise.",
        input_schema=_HOW,
        output_schema={"type": "string"},
        effect=Effect.WRITE,
    )

    async def execute(self, ctx: AgentContext, input: dict[str, str]) -> str:  # noqa: A002 - the protocol's name
        """Raise after a wait."""
        return await escape_later(input["how"])


class Far:
    """An executor to mount, whose calls raise."""

    async def catalog(self) -> Catalog:
        """One tool."""
        spec = PublicSpec(
            name="far",
            description="Raise.",
            input_schema=_HOW,
            output_schema={"type": "string"},
            effect=Effect.WRITE,
            idempotent=False,
            parallel_safe=False,
            confirmation=Confirmation.NONE,
        )
        return Catalog(tools=(spec,), document=b"", version="")

    @asynccontextmanager
    async def stream(self, request: ExecutionRequest) -> AsyncIterator[trio.abc.ReceiveChannel[Any]]:
        """Raise, or answer."""
        assert isinstance(request.arguments, msgspec.Raw)
        await escape_later(msgspec.json.decode(request.arguments)["how"])
        send, receive = trio.open_memory_channel[Any](1)
        result = ExecutionResult(execution_id="exec_far", data_json=b'"fine"')
        send.send_nowait(ExecutionCompleted(seq=0, execution_id="exec_far", tool="far", result=result))
        send.close()
        yield receive

    async def execute(self, request: ExecutionRequest) -> Any:
        """Is not called: events say more."""
        raise NotImplementedError


# What pydantic calls: validators, serialisers and defaults.


@tool(effect="write", register=False)
async def after_validator(how: Annotated[str, AfterValidator(escape)]) -> str:
    """Raise in a validator of an argument."""
    return how


class Checked(BaseModel):
    """An input with a validator."""

    how: str

    @field_validator("how")
    @classmethod
    def _check(cls, how: str) -> str:
        escape(how)
        return how


@tool(effect="write", register=False)
async def field_validators(input: Checked) -> str:  # noqa: A002 - what the documents call it
    """Raise in a validator of a field."""
    return FINE


class CheckedBefore(BaseModel):
    """An input with a validator that sees it first."""

    how: str

    @model_validator(mode="before")
    @classmethod
    def _check(cls, data: Any) -> Any:
        escape(data["how"])
        return data


@tool(effect="write", register=False)
async def model_validators(input: CheckedBefore) -> str:  # noqa: A002 - as above
    """Raise in a validator of a model."""
    return FINE


class Defaulted(BaseModel):
    """An input with a default that is made when it is needed."""

    how: str
    made: str = Field(default_factory=lambda data: escape(data["how"]))


@tool(effect="write", register=False)
async def default_factory(input: Defaulted) -> str:  # noqa: A002 - as above
    """Raise in the factory of a default."""
    return input.made


class Serialised(BaseModel):
    """An output with a serialiser."""

    how: str

    @field_serializer("how")
    def _write(self, how: str) -> str:
        return escape(how)


@tool(effect="write", register=False)
async def serializer(how: str) -> Serialised:
    """Raise in a serialiser."""
    return Serialised(how=how)


class Computed(BaseModel):
    """An output with a computed field."""

    how: str

    @computed_field  # type: ignore[prop-decorator] # as pydantic documents it
    @property
    def said(self) -> str:
        """The escape."""
        return escape(self.how)


@tool(effect="write", register=False)
async def computed(how: str) -> Computed:
    """Raise in a computed field."""
    return Computed(how=how)


# What the host gives: it sees no arguments, so the escape is in the name of the tool, the id of the request, or the token.


def answer(value: T, name: str, site: str) -> Awaitable[T] | T:
    """Answer with a value; raise if the name is ``SITE.HOW``, and in a coroutine if it is ``SITE_later.HOW``."""
    kind, _, how = name.partition(".")
    if kind == site:
        escape(how)
    return _answer_later(value, how) if kind == f"{site}_later" else value


async def _answer_later(value: T, how: str) -> T:
    await escape_later(how)
    return value


_how: ContextVar[str] = ContextVar("how", default="no")
"""The escape of the execution, for the state that it enters: a factory sees no arguments."""


class Entered:
    """State whose factory raises before it is entered."""


class Left:
    """State that raises when it is left."""


class EnteredInThread(Entered):
    """The same, from a plain factory."""


class LeftInThread(Left):
    """The same, from a plain factory."""


@asynccontextmanager
async def entered() -> AsyncIterator[Entered]:
    """See `Entered`."""
    await escape_later(_how.get())
    yield Entered()


@asynccontextmanager
async def left() -> AsyncIterator[Left]:
    """See `Left`."""
    yield Left()
    await escape_later(_how.get())


@contextmanager
def entered_in_thread() -> Iterator[EnteredInThread]:
    """See `EnteredInThread`."""
    escape(_how.get())
    yield EnteredInThread()


@contextmanager
def left_in_thread() -> Iterator[LeftInThread]:
    """See `LeftInThread`."""
    yield LeftInThread()
    escape(_how.get())


@tool(effect="write", register=False)
async def after_entering(how: str, state: State[Entered], other: State[Left]) -> str:
    """Raise nothing itself: its state does, when it is entered and, for no escape, when it is left."""
    return FINE


@tool(effect="write", register=False)
async def before_leaving(how: str, state: State[Left], other: State[LeftInThread]) -> str:
    """The same, when it is left."""
    return FINE


@tool(effect="write", register=False)
def after_entering_in_thread(how: str, state: State[EnteredInThread]) -> str:
    """The same for a plain tool, in its thread."""
    return FINE


@tool(effect="write", register=False)
def before_leaving_in_thread(how: str, state: State[LeftInThread]) -> str:
    """The same for a plain tool, in its thread."""
    return FINE


class Policy:
    """Raises for some tools, and for some arguments."""

    def check(self, context: object, spec: Any) -> Awaitable[None] | None:
        """See `answer`."""
        return answer(None, spec.name, "check")

    def check_arguments(self, context: object, spec: Any, arguments: Any) -> Awaitable[None] | None:
        """See `answer`; the name is the tool's with its argument."""
        _how.set(arguments.get("how", "no"))
        return answer(None, f"{spec.name}.{arguments.get('how')}", "guarded")

    def is_listed(self, context: object, spec: Any) -> Awaitable[bool] | bool:
        """See `answer`."""
        return answer(True, spec.name, "is_listed")


class Sink:
    """Raises for some tools."""

    def record(self, record: Any) -> None:
        """See `answer`."""
        answer(None, record.tool, "sink")


def authenticate(credentials: Credentials) -> Awaitable[AgentContext | None] | AgentContext | None:
    """See `answer`; the name is the token."""
    return answer(AgentContext(principal="ana"), credentials.bearer or "", "token")


async def reconcile(context: AgentContext, arguments: dict[str, Any]) -> Any:
    """Raise instead of saying what became of an attempt."""
    escape(arguments["how"])
    return Unknown()


@tool(effect="write", reconcile=reconcile, register=False)
async def reconciled(how: str) -> str:
    """Never run: its attempt was interrupted."""
    return FINE


@tool(effect="write", register=False)
async def stored(how: str) -> str:
    """Raise nothing itself: the store does, at ids of requests that say so."""
    return FINE


@tool(effect="destructive", register=False)
async def confirmed(how: str) -> str:
    """Raise nothing itself: the question whether it may run does."""
    return FINE


@tool(effect="destructive", register=False)
async def confirmed_later(how: str) -> str:
    """The same, after a wait."""
    return FINE


def confirm(spec: Any, arguments: bytes) -> Awaitable[bool] | bool:
    """See `answer`; the name is the tool's with its argument."""
    return answer(True, f"{spec.name}.{msgspec.json.decode(arguments)['how']}", "confirmed")


@tool(effect="write", register=False)
async def guarded(how: str) -> str:
    """Raise nothing itself: the policy that sees its arguments does."""
    return FINE


@tool(effect="write", register=False)
async def guarded_later(how: str) -> str:
    """The same, after a wait."""
    return FINE


TOOLS = (
    after_a_wait,
    after_entering,
    after_entering_in_thread,
    after_validator,
    before_leaving,
    before_leaving_in_thread,
    books,
    computed,
    confirmed,
    confirmed_later,
    default_factory,
    field_validators,
    from_thread,
    guarded,
    guarded_later,
    in_abandoned_generator,
    in_block,
    in_clean_up,
    in_closed_generator,
    in_coroutine,
    in_generator,
    in_nested_nurseries,
    in_nursery,
    in_scope,
    in_thread,
    in_asyncio,
    in_asyncio_later,
    in_asyncio_future,
    in_clean_up_of_asyncio,
    in_thread_of_its_own,
    model_validators,
    reconciled,
    serializer,
    stored,
    with_context,
)


NAMED = ("check", "check_later", "is_listed", "is_listed_later", "sink")
"""Kinds of tools of which there is one for each escape."""


LISTED = sorted(
    ["far", "made_by_hand", *(each.__name__ for each in TOOLS)]
    + [f"{kind}.{how}" for kind in NAMED for how in HOWS if how == "no" or kind == "sink"]
)
"""The names of all tools but those for which a policy raises."""


def make_app(settings: Settings | None = None, *, authenticated: bool = False) -> App:
    """The application."""
    store = Store()
    app = (
        App("boundary", settings=settings)
        .add(*TOOLS, MadeByHand())
        .mount(Far())
        .state(store)
        .provide(entered, scope="execution")
        .provide(entered_in_thread, scope="execution")
        .provide(left, scope="execution")
        .provide(left_in_thread, scope="execution")
        .store(store)
        .policy(Policy())
        .sink(Sink())
    )
    for kind in NAMED:
        for how in HOWS:

            @app.tool(effect="write", name=f"{kind}.{how}")
            async def named() -> str:
                """Raise nothing itself: the host does."""
                return FINE

    for how in HOWS:
        app.ready(how, partial(escape, how))
        app.ready(f"later.{how}", partial(escape_later, how))
    return app.authenticate(authenticate) if authenticated else app
