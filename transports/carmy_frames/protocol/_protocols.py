"""The two ends of a connection as protocol objects, sans-IO."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection

import msgspec

from carmy_engine import AgentError, Catalog, ErrorInfo, ExecutionEvent
from carmy_engine.codec import event_body, invalid_request, no_pulse

from ._codec import MAX_MESSAGE_BYTES, PROTOCOL, decode_request, decode_server_frame, encode, refused, too_large
from ._errors import LocalProtocolError, RemoteProtocolError
from ._frames import RUNS, Call, ErrorFrame, Event, Id, Limits, Ready, Request, ResultFrame, ServerFrame
from ._state import CALL, CLIENT, SERVER, CallState, ClientState, ServerState, Signal

DEFAULT_LIMITS = Limits(max_message_bytes=MAX_MESSAGE_BYTES, max_calls=1000)
"""Those of the settings by default."""


class ServerProtocol:
    """The server's end of a connection.

    Args:
        limits: Of a message, and of unanswered calls at one time. Further calls are refused as ``OVERLOADED``.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.state = ServerState.STARTING
        self._limits = limits
        self._calls: dict[Id, CallState] = {}

    @property
    def calls(self) -> Collection[Id]:
        """The ids of unanswered calls."""
        return self._calls.keys()

    def send_ready(self, server: str, catalog: Catalog) -> bytes:
        """Encode the first frame."""
        self.state = SERVER.after(self.state, Signal.READY)
        return encode(
            Ready(
                protocol=PROTOCOL,
                server=server,
                tools=len(catalog.tools),
                tools_version=catalog.version,
                limits=self._limits,
            )
        )

    def decode(self, message: bytes, pulse: Callable[[], None] = no_pulse) -> Request:
        """Decode the request in a message. Changes nothing, so that a long message can be decoded in a thread.

        Args:
            message: The message.
            pulse: Called after each piece of a long message.

        Raises:
            RemoteProtocolError: The request is not valid. Send the reply and go on.
        """
        if len(message) > self._limits.max_message_bytes:
            raise too_large(message, self._limits.max_message_bytes)
        return decode_request(message, pulse)

    def receive_message(self, message: bytes) -> Request:
        """Decode the request in a message, and `receive` it.

        Raises:
            RemoteProtocolError: The request is not valid, or not allowed now. Send the reply and go on.
            LocalProtocolError: The connection is not open.
        """
        self.state = SERVER.after(self.state, Signal.REQUEST)
        return self._accept(self.decode(message))

    def receive(self, request: Request) -> Request:
        """Take a request that has been decoded. A `Run` counts as accepted: it must get one answer.

        Raises:
            RemoteProtocolError: The request is not allowed now. Send the reply and go on.
            LocalProtocolError: The connection is not open.
        """
        self.state = SERVER.after(self.state, Signal.REQUEST)
        return self._accept(request)

    def _accept(self, request: Request) -> Request:
        # For every op: two answers with one id would be indistinguishable.
        if request.id in self._calls:
            raise refused(request.id, invalid_request("a call with this id has not been answered yet; choose another"))
        if isinstance(request, RUNS):
            if len(self._calls) >= self._limits.max_calls:
                error = AgentError.standard(
                    "OVERLOADED",
                    f"{self._limits.max_calls} calls of this connection have no answer yet, which is the limit",
                    retry_after=1,
                )
                raise refused(request.id, error)
            self._calls[request.id] = (
                CallState.STREAMING if isinstance(request, Call) and request.stream else CallState.PLAIN
            )
        return request

    def receive_end(self) -> None:
        """Record the client's end of input. Accepted calls are still answered."""
        self.state = SERVER.after(self.state, Signal.END)
        self._close_if_done()

    def send_event(self, call: Id, event: ExecutionEvent) -> bytes:
        """Encode an event of a streaming call."""
        self._calls[call] = CALL.after(self._state_of(call), Signal.EVENT)
        return encode(Event(id=call, event=event.kind, seq=event.seq, data=msgspec.Raw(event_body(event))))

    def send_result(self, call: Id, result: bytes) -> bytes:
        """Encode the result (JSON) of a request, and free its id."""
        self._answered(call)
        return encode(ResultFrame(id=call, result=msgspec.Raw(result)))

    def send_error(self, call: Id, error: ErrorInfo) -> bytes:
        """Encode the error that answers a request, and free its id."""
        self._answered(call)
        return encode(ErrorFrame(id=call, error=error))

    def _state_of(self, call: Id) -> CallState:
        try:
            return self._calls[call]
        except KeyError:
            raise LocalProtocolError(f"there is no unanswered call {call!r}") from None

    def _answered(self, request: Id) -> None:
        self.state = SERVER.after(self.state, Signal.ANSWER)
        state = self._calls.pop(request, None)
        if state is not None:
            CALL.after(state, Signal.ANSWER)
        self._close_if_done()

    def _close_if_done(self) -> None:
        if not self._calls and SERVER.allows(self.state, Signal.LAST_ANSWER):
            self.state = SERVER.after(self.state, Signal.LAST_ANSWER)


class ClientProtocol:
    """The client's end of a connection. It numbers its requests 1, 2, 3 ...

    Attributes:
        state: See `ClientState`.
        ready: The server's first frame; None until it has arrived.
    """

    def __init__(self) -> None:
        self.state = ClientState.CONNECTING
        self.ready: Ready | None = None
        self._ids = itertools.count(1)
        self._requests: dict[Id, CallState] = {}

    @property
    def unanswered(self) -> Collection[Id]:
        """The requests that have no answer yet."""
        return self._requests.keys()

    def next_id(self) -> int:
        """Return an unused id."""
        return next(self._ids)

    def send(self, request: Request) -> bytes:
        """Encode a request, and expect its answer.

        Raises:
            LocalProtocolError: The connection is not open, the id is in use, or the message exceeds the server's limit.
        """
        state = CLIENT.after(self.state, Signal.REQUEST)
        assert self.ready is not None
        if request.id in self._requests:
            raise LocalProtocolError(f"the id {request.id!r} has no answer yet")
        message = encode(request)
        if len(message) > self.ready.limits.max_message_bytes:
            raise LocalProtocolError(
                f"the message has {len(message)} bytes; the server takes {self.ready.limits.max_message_bytes}"
            )
        self.state = state
        streams = isinstance(request, Call) and request.stream
        self._requests[request.id] = CallState.STREAMING if streams else CallState.PLAIN
        return message

    def forget(self, request: Id) -> None:
        """Withdraw a request whose bytes were not sent."""
        self._requests.pop(request, None)

    def receive_message(self, message: bytes) -> ServerFrame:
        """Decode the server's frame in a message.

        Raises:
            RemoteProtocolError: The message is no frame, or not allowed now.
        """
        frame = decode_server_frame(message)
        if isinstance(frame, Ready):
            return self._receive_ready(frame)
        if self.state is not ClientState.OPEN:
            raise RemoteProtocolError(invalid_request(f"the first frame is not the 'ready' of {PROTOCOL}"))
        if frame.id is None:
            return frame  # the error for a message that the server could not read
        state = self._requests.get(frame.id)
        signal = Signal.EVENT if isinstance(frame, Event) else Signal.ANSWER
        if state is None or not CALL.allows(state, signal):
            raise RemoteProtocolError(invalid_request(f"the server sent an unexpected {signal}"))
        if signal is Signal.ANSWER:
            del self._requests[frame.id]
        return frame

    def receive_end(self) -> Collection[Id]:
        """Record the server's end of output. Returns the ids of requests that will never be answered."""
        if self.state is not ClientState.CLOSED:
            self.state = CLIENT.after(self.state, Signal.END)
        lost = tuple(self._requests)
        self._requests.clear()
        return lost

    def _receive_ready(self, frame: Ready) -> Ready:
        if not CLIENT.allows(self.state, Signal.READY):
            raise RemoteProtocolError(invalid_request("the server was ready twice"))
        if frame.protocol != PROTOCOL:
            raise RemoteProtocolError(invalid_request(f"the server speaks {frame.protocol!r}, not {PROTOCOL}"))
        self.state = CLIENT.after(self.state, Signal.READY)
        self.ready = frame
        return frame
