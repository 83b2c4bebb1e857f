"""Policies that allow or refuse calls: the runner, the confirmation policy, and two ready-made policies."""

from __future__ import annotations

import inspect
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import trio

from .._model.context import AgentContext
from .._model.error_boundary import Fault, ask_foreign, await_within, call_foreign
from .._model.errors import AgentError
from .._model.frozen import freeze
from .._model.json_pieces import decode_in_pieces
from .._model.protocols import Policy
from .._model.spec import ToolSpec
from .grants import grants_tool
from .shares import share_of

POLICY_SECONDS = 10.0
"""Limit for one answer of an async policy. It bounds the wait because the deadline of the call starts later."""


class _Hooks(NamedTuple):
    """The functions of one policy."""

    policy: Policy
    check: Callable[..., Any]
    check_arguments: Callable[..., Any] | None
    is_listed: Callable[..., Any] | None
    counts_calls: bool


class Policies:
    """The policies of an engine, in the order in which they were added. Their functions may be sync or async.

    Attributes:
        exist: True if there is at least one policy.
        see_arguments: True if any policy checks arguments.
    """

    def __init__(self, policies: Sequence[Policy] = ()) -> None:
        self._hooks = [
            _Hooks(
                policy,
                policy.check,
                getattr(policy, "check_arguments", None),
                getattr(policy, "is_listed", None),
                bool(getattr(policy, "counts_calls", False)),
            )
            for policy in policies
            if not isinstance(policy, SafePolicy)  # every engine has it
        ]
        self.exist = bool(self._hooks)
        self.see_arguments = any(hooks.check_arguments is not None for hooks in self._hooks)

    async def check(self, context: AgentContext, spec: ToolSpec) -> bool:
        """Check a call against all policies. False if one of them hides the tool.

        Raises:
            AgentError: A policy refuses.
            Fault: A policy failed or returned an invalid value.
        """
        for hooks in self._hooks:
            if hooks.is_listed is not None and not await _is_listed(hooks, context, spec):
                return False
            answer = call_foreign(hooks.check, context, spec)
            if answer is not None:
                await _settle(answer, hooks.policy, "check")
        return True

    @staticmethod
    def view(spec: ToolSpec, arguments: bytes, pulse: Callable[[], None] | None = None) -> Any:
        """The arguments as policies get them: read-only, with defaults.

        Args:
            spec: The tool.
            arguments: A JSON object, already validated against the schema.
            pulse: For long arguments, in a thread: called after each piece.
        """
        sent: dict[str, Any] = (
            msgspec.json.decode(arguments) if pulse is None else decode_in_pieces(arguments, msgspec.json.decode, pulse)
        )
        return freeze({**_defaults(spec), **sent})

    async def check_call(self, context: AgentContext, spec: ToolSpec, given: Any) -> None:
        """Check arguments with the policies that check arguments.

        Args:
            context: Context of the caller.
            spec: The tool.
            given: From `view`.

        Raises:
            AgentError: A policy refuses.
            Fault: A policy failed or returned an invalid value.
        """
        for hooks in self._hooks:
            if hooks.check_arguments is not None:
                answer = call_foreign(hooks.check_arguments, context, spec, given)
                if answer is not None:
                    await _settle(answer, hooks.policy, "check_arguments")

    async def lists(self, context: AgentContext, spec: ToolSpec) -> bool:
        """True if the tool is listed for a caller: no policy hides it or refuses it for all arguments.

        Raises:
            Fault: A policy failed or returned an invalid value.
        """
        for hooks in self._hooks:
            if hooks.is_listed is not None and not await _is_listed(hooks, context, spec):
                return False
            if hooks.counts_calls:
                continue
            try:
                answer = call_foreign(hooks.check, context, spec)
                if answer is not None:
                    await _settle(answer, hooks.policy, "check")
            except AgentError:
                return False
        return True


async def _settle(answer: object, policy: Policy, method: str) -> None:
    """Wait for the answer of an async policy.

    Raises:
        AgentError: It refuses.
        Fault: The policy failed, or the answer is not None. ``False``, for example, must not count as consent.
    """
    if inspect.isawaitable(answer):
        answer = await await_within(POLICY_SECONDS, answer)
    if answer is not None:
        raise Fault(
            TypeError(
                f"{type(policy).__name__}.{method} returned a {type(answer).__name__};"
                " a policy returns None to allow and raises AgentError to refuse"
            )
        )


async def _is_listed(hooks: _Hooks, context: AgentContext, spec: ToolSpec) -> bool:
    assert hooks.is_listed is not None
    answer: object = await ask_foreign(POLICY_SECONDS, hooks.is_listed, context, spec)
    if not isinstance(answer, bool):
        raise Fault(
            TypeError(f"{type(hooks.policy).__name__}.is_listed returned a {type(answer).__name__}; it returns a bool")
        )
    return answer


def _defaults(spec: ToolSpec) -> dict[str, Any]:
    properties: dict[str, Any] = spec.input_schema.get("properties", {})
    return {name: schema["default"] for name, schema in properties.items() if "default" in schema}


def confirmation_required(
    tool: str, *, why: str = "", confirmation_id: str | None = None, expires_in: int | None = None
) -> AgentError:
    """The refusal of a call for lack of a confirmation.

    Args:
        tool: The tool's name.
        why: The reason why a person cannot confirm this call alone, to follow the message.
        confirmation_id: What a person can approve.
        expires_in: Seconds in which this is possible.
    """
    details: dict[str, Any] = {"permission": f"confirm:{tool}"}
    action = "Ask the person to approve this call in the application; it cannot be approved from here."
    if confirmation_id is not None:
        details |= {"confirmation_id": confirmation_id, "expires_in": expires_in}
        action = (
            f"Ask the person to approve {confirmation_id} in the application, then send the same request again;"
            " it cannot be approved from here."
        )
    return AgentError.standard(
        "CONFIRMATION_REQUIRED",
        f"{tool} needs a person's confirmation{why}",
        suggested_action=action,
        details=details,
    )


class SafePolicy:
    """Policy for confirmations: tools that need one require the permission ``confirm:<tool>``. Cannot be removed.

    Every engine checks it last, so a call that another policy refuses asks for no confirmation.
    """

    def check(self, context: AgentContext, spec: ToolSpec) -> None:
        """Refuse with ``CONFIRMATION_REQUIRED``."""
        if spec.needs_confirmation and f"confirm:{spec.name}" not in context.permissions:
            raise confirmation_required(spec.name)


class RequireToolPermission:
    """Policy that requires a permission for every tool. A tool without it is not listed.

    ``tool:NAME`` grants one tool, ``tool:orders.*`` all whose names fit (``*`` stands for any characters), ``effect:read`` all with this
    effect.
    """

    def check(self, context: AgentContext, spec: ToolSpec) -> None:
        """Refuse with ``FORBIDDEN``."""
        if not grants_tool(frozenset(context.permissions), spec):
            raise AgentError.standard(
                "FORBIDDEN", f"this caller may not use {spec.name}", details={"permission": f"tool:{spec.name}"}
            )


class RateLimit:
    """Rate limit per principal, else per session; anonymous callers share one window.

    Windows are fixed and open with a caller's first call. Refused calls are not counted. Per process.

    Args:
        calls: Calls per window, at least 1.
        seconds: Length of the window.
    """

    counts_calls = True
    """`check` counts calls, so listings skip it."""

    MAX_WINDOWS = 10_000
    """Callers remembered. Beyond it, expired windows are dropped, then the oldest."""

    def __init__(self, calls: int, seconds: float) -> None:
        if calls < 1 or not seconds > 0 or not math.isfinite(seconds):
            raise ValueError(f"RateLimit needs calls >= 1 and seconds > 0, not calls={calls}, seconds={seconds}")
        self._calls = calls
        self._seconds = seconds
        self._windows: OrderedDict[tuple[str, str], list[float]] = OrderedDict()

    def check(self, context: AgentContext, spec: ToolSpec) -> None:
        """Refuse with ``RATE_LIMITED`` and ``retry_after`` in whole seconds, at least 1."""
        key = share_of(context)
        now = trio.current_time()
        window = self._windows.get(key)
        if window is None or now >= window[0]:
            if window is None and len(self._windows) >= self.MAX_WINDOWS:
                self._drop(now)
            self._windows.pop(key, None)  # reinserted last: the dict is in order of expiry
            window = self._windows[key] = [now + self._seconds, 0]
        if window[1] >= self._calls:
            raise AgentError.standard(
                "RATE_LIMITED",
                f"at most {self._calls} calls in {self._seconds:g} s",
                retry_after=max(1, math.ceil(window[0] - now)),
            )
        window[1] += 1

    def _drop(self, now: float) -> None:
        while self._windows:
            key = next(iter(self._windows))  # in constant time, which a plain dict takes only without deletions
            if now < self._windows[key][0] and len(self._windows) < self.MAX_WINDOWS:
                break
            del self._windows[key]
