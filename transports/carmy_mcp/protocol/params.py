"""The parameters of methods, and the description of a client."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeVar

import msgspec

from carmy_engine import AgentError, ExecutionRequest
from carmy_engine.codec import UniqueNames, invalid_request
from carmy_engine.codec import decode as decode_json

from .errors import INVALID_PARAMS, JsonRpcError
from .messages import Id
from .versions import is_modern

REQUEST_ID = "carmy/request_id"
"""In a call's ``_meta``: the idempotency identity."""

TIMEOUT_MS = "carmy/timeout_ms"
"""In a call's ``_meta``: most milliseconds to take."""

ON_RUNNING = "carmy/on_running"
"""In a call's ``_meta``: ``wait`` to wait for a running attempt with the same request_id."""

EXECUTION_META = "carmy/execution_meta"
"""In a call's ``_meta``: true asks for the execution's id and status on success as well."""

PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"

TASKS = "io.modelcontextprotocol/tasks"
"""The extension of long calls, among the capabilities of clients and servers."""

T = TypeVar("T")


class _Params(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base: members that are not known are ignored."""


class Elicitation(_Params, frozen=True):
    """The forms of questions that a client shows. Before there were several, none was named."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class ClientCapabilities(_Params, frozen=True):
    """What a client offers to servers."""

    elicitation: Elicitation | None = None
    sampling: dict[str, Any] | None = None
    roots: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None

    @property
    def can_show_forms(self) -> bool:
        """True if a person can be asked to fill in a form."""
        found = self.elicitation
        return found is not None and (found.form is not None or found.url is None)


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the client of a request.

    Attributes:
        version: The version of the protocol.
        capabilities: What it offers.
        is_modern: The version has no ``initialize``.
    """

    version: str
    capabilities: ClientCapabilities
    is_modern: bool = False


NO_CAPABILITIES = ClientCapabilities()


class Implementation(_Params, frozen=True):
    """The name and version of a program."""

    name: str
    version: str


class InitializeParams(_Params, frozen=True):
    """Of ``initialize``."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class PageParams(_Params, frozen=True):
    """Of every list."""

    cursor: str | None = None


class TaskParams(_Params, frozen=True):
    """Of every request about a task."""

    task_id: str


class ReadParams(_Params, frozen=True):
    """Of ``resources/read``, ``resources/subscribe`` and ``resources/unsubscribe``."""

    uri: str
    request_state: str | None = None
    input_responses: dict[str, msgspec.Raw] | None = None


class PromptParams(_Params, frozen=True):
    """Of ``prompts/get``."""

    name: str
    arguments: dict[str, str] | None = None
    request_state: str | None = None
    input_responses: dict[str, msgspec.Raw] | None = None


class Reference(_Params, frozen=True):
    """What is completed: a prompt by its name, or a template by its address."""

    type: Literal["ref/prompt", "ref/resource"]
    name: str | None = None
    uri: str | None = None


class Argument(_Params, frozen=True):
    """An argument of which the beginning is known."""

    name: str
    value: str


class CompletionContext(_Params, frozen=True):
    """The other arguments."""

    arguments: dict[str, str] | None = None


class CompleteParams(_Params, frozen=True):
    """Of ``completion/complete``."""

    ref: Reference
    argument: Argument
    context: CompletionContext | None = None


class LevelParams(_Params, frozen=True):
    """Of ``logging/setLevel``."""

    level: Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class SubscriptionFilter(_Params, frozen=True, omit_defaults=True):
    """The changes that a client wants to be notified of."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None


class ListenParams(_Params, frozen=True):
    """Of ``subscriptions/listen``."""

    notifications: SubscriptionFilter


class SampleResult(_Params, frozen=True):
    """A message of the client's model."""

    model: str
    content: list[Any] | dict[str, Any]
    role: str = "assistant"
    stop_reason: str | None = None

    @property
    def blocks(self) -> list[Any]:
        """The content, one block or several."""
        return self.content if isinstance(self.content, list) else [self.content]


class RootEntry(_Params, frozen=True):
    """A root."""

    uri: str
    name: str | None = None


class RootsResult(_Params, frozen=True):
    """The roots of a client."""

    roots: list[RootEntry]


class CancelledParams(_Params, frozen=True):
    """Of ``notifications/cancelled``."""

    request_id: Id | None = None


class ProgressParams(_Params, frozen=True):
    """Of ``notifications/progress``."""

    progress_token: Id
    progress: float
    total: float | None = None
    message: str | None = None


class ElicitResult(_Params, frozen=True):
    """The answer of a person."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """The members of ``_meta`` that have a meaning here."""

    progress_token: Any = msgspec.field(default=None, name="progressToken")
    request_id: Any = msgspec.field(default=None, name=REQUEST_ID)
    timeout_ms: Any = msgspec.field(default=None, name=TIMEOUT_MS)
    on_running: Any = msgspec.field(default="refuse", name=ON_RUNNING)
    execution_meta: Any = msgspec.field(default=False, name=EXECUTION_META)
    version: Any = msgspec.field(default=msgspec.UNSET, name=PROTOCOL_VERSION)
    capabilities: Any = msgspec.field(default=msgspec.UNSET, name=CLIENT_CAPABILITIES)
    log_level: Any = msgspec.field(default=None, name=LOG_LEVEL)

    @property
    def wants_progress(self) -> bool:
        """True if there is a token for reports."""
        return is_id(self.progress_token)


NO_META = Meta()


class CallParams(_Params, frozen=True):
    """Of ``tools/call``.

    Attributes:
        name: The tool.
        arguments: As they were sent.
        meta: As it was sent.
        request_state: See `InputRequired`.
        input_responses: The answers to the questions that the state belongs to.
    """

    name: str
    arguments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    meta: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="_meta")
    request_state: str | None = None
    input_responses: dict[str, msgspec.Raw] | None = None


class _OnlyMeta(msgspec.Struct, frozen=True):
    meta: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="_meta")


_call = msgspec.json.Decoder(CallParams)
_meta = msgspec.json.Decoder(Meta)
_only_meta = msgspec.json.Decoder(_OnlyMeta)
_CALL = UniqueNames(("name", "arguments", "_meta"), "member")
_META = UniqueNames((REQUEST_ID, TIMEOUT_MS, "progressToken"), "member")
_OBJECT = ord("{")


def is_id(value: object) -> bool:
    """True for a string or an integer."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def parse(params: msgspec.Raw, kind: type[T], method: str) -> T:
    """The parameters of a method.

    Raises:
        JsonRpcError: They are not valid.
    """
    try:
        found: T = decode_json(bytes(params), type=kind)
    except AgentError as error:
        raise _invalid(method, error) from None
    return found


def parse_call(params: msgspec.Raw) -> CallParams:
    """The parameters of ``tools/call``.

    Raises:
        AgentError: ``INVALID_REQUEST``: a member is there twice.
        JsonRpcError: They are not valid.
    """
    data = bytes(params)
    try:
        found: CallParams = decode_json(data, decoder=_call)
    except AgentError as error:
        raise _invalid("tools/call", error) from None
    arguments, meta = found.arguments, found.meta
    inner = b"" if meta is msgspec.UNSET else bytes(meta)
    _CALL.check(data, None if arguments is msgspec.UNSET else (b'"arguments"', arguments), inner=inner)
    if inner[:1] == b"{":
        _META.check(inner)
    return found


def parse_meta(found: msgspec.Raw | msgspec.UnsetType) -> Meta:
    """The known members of ``_meta``.

    Raises:
        JsonRpcError: It is no object.
    """
    if found is msgspec.UNSET:
        return NO_META
    data = bytes(found)
    if data[0] != _OBJECT:
        if data == b"null":
            return NO_META
        raise JsonRpcError(INVALID_PARAMS, "'_meta' must be an object")
    meta: Meta = decode_json(data, decoder=_meta)
    return meta


def meta_of(params: msgspec.Raw) -> Meta:
    """The known members of the ``_meta`` of any request.

    Raises:
        JsonRpcError: It is no object.
    """
    data = bytes(params)
    if b"_meta" not in data:  # an escape in the name is not worth a second parse
        return NO_META
    only: _OnlyMeta = decode_json(data, decoder=_only_meta)
    return parse_meta(only.meta)


def parse_capabilities(found: object) -> ClientCapabilities:
    """The capabilities in the ``_meta`` of a request.

    Raises:
        JsonRpcError: They are not valid.
    """
    try:
        return msgspec.convert(found, ClientCapabilities)
    except msgspec.ValidationError as error:
        raise JsonRpcError(INVALID_PARAMS, f"_meta['{CLIENT_CAPABILITIES}'] is not valid: {error}") from None


def client_of(version: str, capabilities: ClientCapabilities) -> Client:
    """The description of a client."""
    return Client(version=version, capabilities=capabilities, is_modern=is_modern(version))


def execution_request(params: CallParams, tool: str, meta: Meta) -> ExecutionRequest:
    """The execution request in a call.

    Args:
        params: The parameters.
        tool: The name of the tool in the engine.
        meta: The members of its ``_meta``.

    Raises:
        AgentError: ``INVALID_REQUEST``: one of the members of this package is not what it must be.
    """
    arguments = None if params.arguments is msgspec.UNSET else params.arguments
    if meta is NO_META:
        return ExecutionRequest(tool=tool, arguments=arguments)
    request_id, timeout_ms, on_running = meta.request_id, meta.timeout_ms, meta.on_running
    if request_id is not None and not isinstance(request_id, str):
        raise invalid_request(f'_meta["{REQUEST_ID}"] must be a string')
    if timeout_ms is not None and (
        isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float) or not 0 < timeout_ms < math.inf
    ):
        raise invalid_request(f'_meta["{TIMEOUT_MS}"] must be a positive number of milliseconds')
    if not isinstance(meta.execution_meta, bool):
        raise invalid_request(f'_meta["{EXECUTION_META}"] must be true or false')
    if on_running not in ("refuse", "wait"):
        raise invalid_request(f'_meta["{ON_RUNNING}"] must be "refuse" or "wait"')
    return ExecutionRequest(
        tool=tool, arguments=arguments, request_id=request_id, timeout_ms=timeout_ms, on_running=on_running
    )


def _invalid(method: str, error: AgentError) -> JsonRpcError:
    reason = (error.info.details or {}).get("reason", error.message)
    return JsonRpcError(INVALID_PARAMS, f"the parameters of {method} are not valid: {reason}")
