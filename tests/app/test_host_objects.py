"""What an application is given is checked where it is given."""

import functools
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from carmy_engine import AgentContext, App, BearerTokens, DeclarationError, RequireToolPermission, tool
from carmy_engine.stores.memory import MemoryStore


class AsyncSink:
    async def record(self, record: object) -> None: ...


class OneArgument:
    def check(self, context: object) -> None: ...


class Generating:
    def check(self, context: object, spec: object) -> Iterator[None]:
        yield None


class WrongArguments:
    def check(self, context: object, spec: object) -> None: ...

    def check_arguments(self, context: object, spec: object) -> None: ...


class HalfAStore:
    async def reserve(self, reservation: object) -> None: ...


async def look() -> None: ...


def read(path: str, mode: str) -> None: ...


@contextmanager
def open_database() -> Iterator[int]:
    yield 1


@asynccontextmanager
async def open_async() -> Any:
    yield 1


REFUSED: list[tuple[str, Callable[[Any], object], str]] = [
    ("policy", lambda app: app.policy(RequireToolPermission), "the class RequireToolPermission is not a policy"),
    ("policy", lambda app: app.policy(OneArgument()), "OneArgument object is not a policy.* check\\(context, spec\\)"),
    ("policy", lambda app: app.policy(Generating()), "Generating object is not a policy"),
    ("policy", lambda app: app.policy(WrongArguments()), "it needs check_arguments\\(context, spec, arguments\\)"),
    ("policy", lambda app: app.policy(lambda c, s: None), "the function <lambda> is not a policy"),
    ("sink", lambda app: app.sink(AsyncSink()), "AsyncSink object is not a sink.* plain function"),
    ("sink", lambda app: app.sink(AsyncSink), "the class AsyncSink is not a sink"),
    ("sink", lambda app: app.sink(print), "the function print is not a sink"),
    ("store", lambda app: app.store(HalfAStore()), "HalfAStore object is not a store.*reserve, complete"),
    ("store", lambda app: app.store(MemoryStore), "the class MemoryStore is not a store"),
    ("authenticator", lambda app: app.authenticate(BearerTokens), "the class BearerTokens is not an authenticator"),
    ("authenticator", lambda app: app.authenticate(look), "the async function look is not an authenticator"),
    ("authenticator", lambda app: app.authenticate({"t": 1}), "dict object is not an authenticator"),
    ("check", lambda app: app.ready("db", read), "the function read is not a readiness check"),
    ("check", lambda app: app.ready("db", functools.partial(read, "x")), "a partial of the function read is not"),
    ("state", lambda app: app.state(open_database()), "_GeneratorContextManager object is not a state.*: enter it"),
    ("state", lambda app: app.state(open_async()), "_AsyncGeneratorContextManager object is not a state.*: enter it"),
    ("state", lambda app: app.state(look()), "the coroutine of look is not a state.*awaiting"),
    ("state", lambda app: app.state(look), "the async function look is not a state"),
    ("state", lambda app: app.state(MemoryStore), "the class MemoryStore is not a state"),
]


@pytest.mark.parametrize(("kind", "give", "words"), REFUSED, ids=[words[:40] for _, _, words in REFUSED])
def test_what_could_not_be_called_is_refused_at_once(kind: str, give: Callable[[Any], object], words: str) -> None:
    """One sentence names what was given, what it is not, for which application, and what is wanted."""
    with pytest.raises(DeclarationError, match=words) as caught:
        give(App("shop"))
    assert "for application 'shop': it needs" in str(caught.value)
    assert "0x" not in str(caught.value)


class Lock:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Callable_:
    def __call__(self, credentials: object) -> None: ...


def test_what_can_be_called_is_taken() -> None:
    """Plain and async functions, methods, partials and callable objects are as good as each other."""
    app = App("shop").authenticate(Callable_())
    app.ready("a", look).ready("b", functools.partial(read, "x", "r")).ready("c", lambda: True)
    app.state(Lock()).state(look, as_type=Callable[[], object])
    app.sink(type("Sink", (), {"record": staticmethod(functools.partial(print, end=""))})())


async def test_what_is_bound_is_checked() -> None:
    """`bind` refuses what cannot ask a person, and what is no context."""
    async with App("shop").open() as engine:
        with pytest.raises(DeclarationError, match="the async function look is not a confirm function"):
            engine.bind(confirm=look)  # type: ignore[arg-type]  # on purpose
        with pytest.raises(DeclarationError, match="dict object is not a caller's context"):
            engine.bind(context={"principal": "ana"})  # type: ignore[arg-type]  # on purpose
        with pytest.raises(TypeError, match="metadata must be a mapping"):
            engine.bind(context=AgentContext(metadata=["x"]))  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    ("reconcile", "words"),
    [
        (read, "reconcile is the function read, not an async function"),
        (look, "reconcile is the async function look, which cannot be called with \\(ctx, arguments\\)"),
        (MemoryStore, "reconcile is the class MemoryStore, not an async function"),
    ],
)
def test_a_reconcile_function_is_named(reconcile: Any, words: str) -> None:
    """The error describes the problem in words, without the address of an object."""
    with pytest.raises(DeclarationError, match=words):

        @tool(effect="write", reconcile=reconcile, register=False)
        async def pay() -> None: ...
