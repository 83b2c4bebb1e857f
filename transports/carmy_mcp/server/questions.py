"""Requests of the server to a client, until they are answered or withdrawn."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from carmy_engine import grace
from carmy_frames.protocol import LocalProtocolError
from carmy_net import FLUSH_SECONDS

from ..protocol.connection import ServerProtocol
from ..protocol.errors import METHOD_NOT_FOUND, JsonRpcError
from ..protocol.messages import ErrorResponse, Id, Response

Send = Callable[[bytes], Awaitable[None]]


class _Waiting:
    """One request without an answer."""

    __slots__ = ("answer", "answered")

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.answer: Response | ErrorResponse | None = None


class OpenRequests:
    """The requests of the server on one connection, or in one session.

    Args:
        protocol: Encodes them.
    """

    def __init__(self, protocol: ServerProtocol) -> None:
        self._protocol = protocol
        self._waiting: dict[Id, _Waiting] = {}

    async def ask(self, method: str, params: Any, send: Send) -> msgspec.Raw:
        """Send a request, and return the result. If cancelled, the request is withdrawn.

        Args:
            method: The method.
            params: Its parameters.
            send: Sends a message.

        Raises:
            JsonRpcError: The client answered with an error, or cannot be asked.
        """
        try:
            number, data = self._protocol.send_request(method, params)
        except LocalProtocolError as error:
            raise JsonRpcError(METHOD_NOT_FOUND, str(error)) from None
        waiting = self._waiting[number] = _Waiting()
        try:
            await send(data)
            await waiting.answered.wait()
        finally:
            del self._waiting[number]
            if waiting.answer is None:
                withdrawal = self._protocol.withdraw(number)
                with grace(FLUSH_SECONDS), contextlib.suppress(trio.ClosedResourceError):
                    await send(withdrawal)
        answer = waiting.answer
        assert answer is not None
        if isinstance(answer, ErrorResponse):
            code = int(answer.error.code) if abs(answer.error.code) < 2**53 else METHOD_NOT_FOUND
            raise JsonRpcError(code, answer.error.message, answer.error.data)
        return answer.result

    def receive(self, answer: Response | ErrorResponse) -> None:
        """Give an answer to the task that waits for it."""
        waiting = None if answer.id is None else self._waiting.get(answer.id)
        if waiting is not None:
            waiting.answer = answer
            waiting.answered.set()
