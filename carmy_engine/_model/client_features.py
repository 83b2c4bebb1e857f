"""What a tool can ask of the client behind its call: a person's answer, a model's, a line in its log, its root directories."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec
import trio

from .content import Content, Text, text_for
from .errors import AgentError
from .rate_limited_log import BurstLimit, RateLimitedLogger
from .resources import Message

T = TypeVar("T")

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""The levels of RFC 5424, the least severe first."""

LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}
"""The level of the standard library for each of these."""

MAX_LOGS = 100
"""Messages of one call in a second. A person reads none of more; the rest is counted."""

log = RateLimitedLogger(logging.getLogger("carmy.tools"), burst=1000)


class Answer(msgspec.Struct, frozen=True):
    """A person's answer to a question.

    Attributes:
        action: ``accept``, with `content`; ``decline``: the person refuses; ``cancel``: the person has not chosen.
        content: The values by name.
    """

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None = None


class SampleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a message of the client's model.

    Attributes:
        messages: The conversation so far.
        system: The system prompt.
        max_tokens: The most that the model may write.
        temperature: The randomness of its choice.
        stop: Texts at which it stops.
        models: Names of models, the preferred first; hints that the client may ignore.
    """

    messages: tuple[Message, ...]
    system: str | None = None
    max_tokens: int = 1000
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the client's model.

    Attributes:
        content: Its parts.
        model: The model that wrote it.
        stop_reason: The reason of its end, such as ``end_turn`` or ``max_tokens``.
    """

    content: tuple[Content, ...]
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """Its content in words."""
        return "\n".join(map(text_for, self.content))


class Root(msgspec.Struct, frozen=True):
    """A directory, or another place, that the client works in.

    Attributes:
        uri: Its address, such as ``file:///srv/shop``.
        name: Its name, for people.
    """

    uri: str
    name: str | None = None


class ClientFeatures(Protocol):
    """The features of the client of a call. A transport binds them to the caller: ``engine.bind(client=...)``.

    The engine calls the methods in the tool's task: a cancellation of the call, and its deadline, cancel them. They may raise
    `AgentError`.
    """

    @property
    def can_ask(self) -> bool:
        """The client can ask the person behind it."""
        ...

    @property
    def can_sample(self) -> bool:
        """The client lends its model."""
        ...

    @property
    def has_roots(self) -> bool:
        """The client has roots."""
        ...

    def ask(self, message: str, schema: Mapping[str, Any], /) -> Awaitable[Answer]:
        """Ask the person.

        Args:
            message: The question.
            schema: JSON Schema of the values: a flat object of texts, numbers, booleans and choices. The engine checks the answer.
        """
        ...

    def sample(self, request: SampleRequest, /) -> Awaitable[Sample]:
        """Ask the client's model."""
        ...

    def roots(self) -> Awaitable[Sequence[Root]]:
        """The client's roots."""
        ...

    def log(self, level: LogLevel, message: str, /) -> bool:
        """Send a line to the client; never blocks. False: it takes none, so the event stream or the log of the server gets it."""
        ...


class ToolClient:
    """The client, as a running tool uses it. This base class is that of callers without features."""

    __slots__ = ()

    @property
    def features(self) -> ClientFeatures | None:
        """The features of the transport, for another executor that runs the tool; None without any."""
        return None

    @property
    def can_ask(self) -> bool:
        """See `ClientFeatures`."""
        return False

    @property
    def can_sample(self) -> bool:
        """See `ClientFeatures`."""
        return False

    @property
    def has_roots(self) -> bool:
        """See `ClientFeatures`."""
        return False

    async def ask(self, model: type[T], message: str) -> T:
        """See `AgentContext.ask`."""
        raise _unavailable("ask a person", "can_ask")

    async def sample(self, request: SampleRequest) -> Sample:
        """See `AgentContext.sample`."""
        raise _unavailable("use the client's model", "can_sample")

    async def roots(self) -> tuple[Root, ...]:
        """See `AgentContext.roots`."""
        raise _unavailable("see the client's roots", "has_roots")

    def log(self, level: LogLevel, message: str) -> bool:
        """True if the client takes the line."""
        return False


NO_CLIENT = ToolClient()
"""The client of a caller without features."""


def _unavailable(what: str, member: str) -> AgentError:
    return AgentError.standard(
        "CLIENT_UNAVAILABLE",
        f"this call has no client that lets a tool {what}",
        suggested_action=f"Check ctx.{member} first, and do without where it is false.",
        details={"needs": member},
    )


def messages_of(given: str | Message | Content | Sequence[str | Message | Content]) -> tuple[Message, ...]:
    """One or several messages, texts and pieces of content, as messages.

    Raises:
        TypeError: Something is none of these.
    """
    items = given if isinstance(given, list | tuple) else [given]
    return tuple(map(_message, items))


def _message(given: object) -> Message:
    if isinstance(given, Message):
        return given
    if isinstance(given, str):
        return Message(Text(given))
    if isinstance(given, Content):
        return Message(given)
    raise TypeError(f"a message is a text, content, or a Message, not a {type(given).__name__}")


class LogLimit:
    """The limit of the messages of one call, and their way into the trio thread.

    Args:
        send: Sends a message, in the trio thread.
        thread: The trio thread.
        token: Runs functions there.
    """

    def __init__(self, send: _Send, thread: int, token: trio.lowlevel.TrioToken) -> None:
        self._send = send
        self._thread = thread
        self._token = token
        self._limit = BurstLimit[str](MAX_LOGS, 1.0)

    def log(self, level: LogLevel, message: str) -> None:
        """Send a message, or count it; with the next one comes the number of those that were left out."""
        is_admitted, past = self._limit.admit("")
        for _, omitted in past:
            self._dispatch("warning", f"{omitted} messages were left out: at most {MAX_LOGS} a second are sent")
        if is_admitted:
            self._dispatch(level, message)

    def _dispatch(self, level: LogLevel, message: str) -> None:
        if threading.get_ident() == self._thread:
            self._send(level, message)
        else:
            self._token.run_sync_soon(self._send, level, message)


class _Send(Protocol):
    def __call__(self, level: LogLevel, message: str, /) -> object: ...
