"""To a server that is a child process: JSON-RPC over its standard input and output."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from weakref import WeakValueDictionary

import anyio
import mcp_types as types
import msgspec
import trio
from mcp.client.stdio import get_default_environment
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from carmy_engine import grace
from carmy_engine.codec import one_line
from carmy_net import FLUSH_SECONDS, SendQueue
from carmy_stdio import Child, LineChannel, open_child

from .limits import McpClientLimits
from .link import CALL, Call, Failure, Hear, Incoming, Sent

log = logging.getLogger("carmy.mcp")


@asynccontextmanager
async def open_process(
    command: Sequence[str], env: Mapping[str, str] | None, cwd: str | Path | None, limits: McpClientLimits
) -> AsyncIterator[StdioLink]:
    """Run a server for the length of a block; see `carmy_stdio.open_child`.

    Raises:
        ClosedError: The command cannot be started.
    """
    async with open_child(command, get_default_environment() | dict(env or {}), cwd) as child:
        link = StdioLink(child, limits.max_answer_bytes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.write)
            try:
                yield link
            finally:
                await link.close()
                nursery.cancel_scope.cancel()


class StdioLink:
    """See `carmy_mcp.client.link.Link`."""

    def __init__(self, child: Child, max_answer_bytes: int) -> None:
        self._max_bytes = max_answer_bytes
        self.listeners: dict[str | int, Hear] = {}
        self.streams = Incoming(self._receive, self.listeners), Sent(self._send)
        self._child = child
        self._channel = LineChannel(child.receive_some, child.send_all, self._max_bytes)
        self._out = SendQueue(log=log)
        self._calls: WeakValueDictionary[str | int, Call] = WeakValueDictionary()
        """Weak: the waiting task holds its call, and a call that was left needs no entry."""
        self._lost: str | None = None

    def failure(self, error: MCPError, call: Call) -> tuple[Failure, str] | None:
        """See `carmy_mcp.client.link.Link.failure`."""
        if error.code != types.CONNECTION_CLOSED or self._lost is None:
            return None
        sent = call.message is not None and call.message.taken
        return "lost" if sent else "not_sent", self._lost

    async def write(self) -> None:
        """Write what is queued, until nothing more comes, or the server is given up."""
        if not await self._out.write_shielded(self._channel):
            self._out.clear()

    async def close(self) -> None:
        """Let what is queued leave, mostly cancels, briefly."""
        self._lose(f"the client of {self._child.name} was closed")
        self._out.close()
        self._out.flush_within(FLUSH_SECONDS)
        with grace(FLUSH_SECONDS):
            await self._out.written.wait()

    def _lose(self, why: str) -> None:
        if self._lost is None:
            self._lost = why

    async def _send(self, item: SessionMessage) -> None:
        data = _bytes_of(item.message)
        try:
            await self._out.wait_for_room(len(data))
            message = self._out.put(data)
        except trio.ClosedResourceError:
            self._lose(f"{self._child.name} was lost{self._child.describe_exit()}")
            raise anyio.ClosedResourceError from None
        call = CALL.get()
        if call is not None and isinstance(item.message, JSONRPCRequest) and call.message is None:
            call.message = message
            self._calls[item.message.id] = call

    async def _receive(self) -> SessionMessage:
        while self._lost is None:
            try:
                line = await self._channel.receive()
            except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
                self._lose(f"{self._child.name} was lost{self._child.describe_exit()}")
                break
            if len(line) > self._max_bytes:
                self._lose(f"{self._child.name} sent a message of more than {self._max_bytes} bytes")
                break
            message = self._read(line)
            if message is not None:
                return SessionMessage(message)
        self._out.clear()
        raise anyio.EndOfStream

    def _read(self, line: bytes) -> JSONRPCMessage | None:
        """A line as a message; None for what is none, such as a print that went astray."""
        try:
            message = _understood(_decoder.decode(line))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            message = None
        if message is None:
            message = self._unreadable(line)
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._calls.pop(message.id, None)
        if message is None and line.strip():
            log.warning("%s printed a line that is no message", self._child.name)
        return message

    def _unreadable(self, line: bytes) -> JSONRPCError | None:
        """An error in place of an answer that is no JSON, such as one with NaN, so that its caller does not wait for ever."""
        try:
            found: Any = json.loads(line)
        except (ValueError, RecursionError):
            return None
        id_: Any = cast("dict[str, Any]", found).get("id") if isinstance(found, dict) else None
        call = self._calls.get(id_) if isinstance(id_, str | int) else None
        if call is None:
            return None
        call.unreadable = True
        error = types.ErrorData(code=types.PARSE_ERROR, message="the answer cannot be read")
        return JSONRPCError(jsonrpc="2.0", id=id_, error=error)


class _Error(msgspec.Struct):
    code: float
    message: str = ""
    data: Any = None


class _Message(msgspec.Struct):
    id: str | int | None = None
    method: str | None = None
    params: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: _Error | None = None


_decoder = msgspec.json.Decoder(_Message)


def _understood(found: _Message) -> JSONRPCMessage | None:
    """One of the SDK's messages; it checks what is inside."""
    if found.method is not None:
        fields: dict[str, Any] = {"jsonrpc": "2.0", "method": found.method, "params": found.params}
        if found.id is None:
            return JSONRPCNotification.model_construct(**fields)
        return JSONRPCRequest.model_construct(id=found.id, **fields)
    if found.id is None:
        return None
    if found.result is not None:
        return JSONRPCResponse.model_construct(jsonrpc="2.0", id=found.id, result=found.result)
    if found.error is None:
        return None
    code = int(found.error.code) if math.isfinite(found.error.code) else types.INTERNAL_ERROR
    error = types.ErrorData.model_construct(code=code, message=found.error.message, data=found.error.data)
    return JSONRPCError.model_construct(jsonrpc="2.0", id=found.id, error=error)


def _bytes_of(message: JSONRPCMessage) -> bytes:
    body: Any = message.model_dump(mode="json", by_alias=True, exclude_none=True)
    return one_line(msgspec.json.encode(body))
