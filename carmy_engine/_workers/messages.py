"""The messages between an engine and a worker process: JSON behind its length in four bytes.

One pipe leads to the worker and one back. Both ends are of the same version, so messages have no version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from .._model.cause import Cause
from .._model.client_features import LogLevel
from .._model.compiled_tool import FunctionPlace
from .._model.error_info import ErrorInfo

_LENGTH_BYTES = 4

MAX_MESSAGE_BYTES = 256 * 1024 * 1024
"""Of one message from a worker. Outputs have their own limits; a longer message does not come from the program of a worker."""

M = TypeVar("M")


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One message."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that a worker loads.

    Attributes:
        place: Where its function is.
        max_output_bytes: Of its output.
    """

    place: FunctionPlace
    max_output_bytes: int


class Hello(Message, frozen=True, kw_only=True):
    """To a worker, first.

    Attributes:
        tools: All tools; a call names one by its position.
        max_memory_bytes: See `WorkerSettings`; so the next.
        max_cpu_secs: For one call.
        log_level: Of the root logger.
        expose_errors: Answer with the type and message of unexpected exceptions.
    """

    tools: tuple[Tool, ...]
    max_memory_bytes: int | None
    max_cpu_secs: float | None
    log_level: int
    expose_errors: bool


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of an `AgentContext` that have a JSON form."""

    principal: str | None
    session: str | None
    permissions: frozenset[str]
    metadata: Mapping[str, Any]
    transport: str
    traceparent: str | None
    thread_id: str | None
    run_id: str | None
    node_path: str | None
    attempt: int | None
    caller_id: str | None
    call_id: str | None
    execution_id: str
    request_id: str | None


class Call(Message, frozen=True, kw_only=True):
    """To a worker: run a tool.

    Attributes:
        id: Of the call, on this worker.
        tool: Its position in `Hello`.
        arguments: A JSON object, checked.
        context: For the tool's `AgentContext`.
        remaining: Seconds until the deadline; None for none.
        is_listening: Progress is read.
    """

    id: int
    tool: int
    arguments: msgspec.Raw
    context: CallContext
    remaining: float | None
    is_listening: bool


class Cancel(Message, frozen=True, kw_only=True):
    """To a worker: the call is asked to stop."""

    id: int
    cause: Cause


class PartTaken(Message, frozen=True, kw_only=True):
    """To a worker: the reader has room for the next part."""

    id: int


class Ready(Message, frozen=True, kw_only=True):
    """From a worker, once: it has loaded the tools.

    Attributes:
        problems: Why some of them cannot be run.
    """

    problems: tuple[str, ...] = ()


class Started(Message, frozen=True, kw_only=True):
    """From a worker: the function is called now."""

    id: int


class Report(Message, frozen=True, kw_only=True):
    """From a worker: see `Progress.report`."""

    id: int
    progress: int | float | None
    total: int | float | None
    message: str | None


class Part(Message, frozen=True, kw_only=True):
    """From a worker: see `Progress.partial`."""

    id: int
    data: msgspec.Raw


class ToolLine(Message, frozen=True, kw_only=True):
    """From a worker: see `AgentContext.log`."""

    id: int
    level: LogLevel
    message: str


class LogLine(Message, frozen=True, kw_only=True):
    """From a worker: a record of a logger, as text."""

    logger: str
    level: int
    text: str


class Returned(Message, frozen=True, kw_only=True):
    """From a worker, last of a call: the rendered output."""

    id: int
    data: msgspec.Raw


class Raised(Message, frozen=True, kw_only=True):
    """From a worker, last of a call.

    Attributes:
        id: Of the call.
        error: The error for the caller.
        crashed: The tool raised something undeclared. The traceback was logged.
    """

    id: int
    error: ErrorInfo
    crashed: bool


ToWorker = Hello | Call | Cancel | PartTaken
OfCall = Started | Report | Part | ToolLine | Returned | Raised
FromWorker = Ready | LogLine | Started | Report | Part | ToolLine | Returned | Raised

to_worker: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)
from_worker: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)


def framed(message: Message) -> bytes:
    """The bytes of a message."""
    data = msgspec.json.encode(message)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


class FrameReader:
    """Finds messages in the bytes of a pipe.

    Args:
        max_bytes: Of one message.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes and return the messages that they complete.

        Raises:
            ValueError: A message is too long.
        """
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH_BYTES:
            end = start + _LENGTH_BYTES
            length = int.from_bytes(buffer[start:end], "big")
            if length > self._max_bytes:
                raise ValueError(f"a message of {length} bytes")
            if len(buffer) - end < length:
                break
            start = end + length
            yield bytes(buffer[end:start])
        del buffer[:start]
