"""Who may call what: the policy that is always there, and two that an application can add."""

from __future__ import annotations

import math

import trio

from ._context import AgentContext
from ._model.spec import ToolSpec
from .errors import AgentError


def missing_confirmation(context: AgentContext, spec: ToolSpec) -> str | None:
    """The permission that a person would have to grant; None when there is nothing to confirm."""
    permission = f"confirm:{spec.name}"
    return permission if spec.needs_confirmation and permission not in context.permissions else None


class SafePolicy:
    """Destructive tools, and those that ask for it, need the permission ``confirm:<tool>``. Cannot be removed."""

    def check(self, context: AgentContext, spec: ToolSpec) -> None:
        """Refuse with ``CONFIRMATION_REQUIRED``."""
        permission = missing_confirmation(context, spec)
        if permission is not None:
            raise AgentError.standard(
                "CONFIRMATION_REQUIRED",
                f"{spec.name} needs a person's confirmation",
                suggested_action=f"Ask the person, then call again with the permission {permission} granted.",
                details={"permission": permission},
            )

    def is_listed(self, context: AgentContext, spec: ToolSpec) -> bool:
        """A tool that can be confirmed can be seen."""
        return True


class RequireToolPermission:
    """Every tool needs the permission ``tool:<name>``; a tool without it is not listed either."""

    def check(self, context: AgentContext, spec: ToolSpec) -> None:
        """Refuse with ``FORBIDDEN``."""
        if not self.is_listed(context, spec):
            raise AgentError.standard("FORBIDDEN", f"this caller may not use {spec.name}")

    def is_listed(self, context: AgentContext, spec: ToolSpec) -> bool:
        """The same rule for seeing as for calling."""
        return f"tool:{spec.name}" in context.permissions


class RateLimit:
    """At most `calls` per `seconds` for each principal, else each session; anonymous callers share one window.

    Windows are fixed and open with a caller's first call. Refused calls are not counted. Per process.

    Args:
        calls: Calls per window, at least 1.
        seconds: Length of the window.
    """

    MAX_WINDOWS = 10_000
    """Callers remembered. Beyond it, expired windows are dropped, then the oldest."""

    def __init__(self, calls: int, seconds: float) -> None:
        if calls < 1 or not seconds > 0 or not math.isfinite(seconds):
            raise ValueError(f"RateLimit needs calls >= 1 and seconds > 0, not calls={calls}, seconds={seconds}")
        self._calls = calls
        self._seconds = seconds
        self._windows: dict[tuple[str, str], list[float]] = {}

    def check(self, context: AgentContext, spec: ToolSpec) -> None:
        """Refuse with ``RATE_LIMITED`` and ``retry_after`` in whole seconds, at least 1."""
        if context.principal is not None:
            key = ("principal", context.principal)
        elif context.session is not None:
            key = ("session", context.session)
        else:
            key = ("anonymous", "")
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

    def is_listed(self, context: AgentContext, spec: ToolSpec) -> bool:
        """Looking costs nothing."""
        return True

    def _drop(self, now: float) -> None:
        oldest_first = iter(list(self._windows))
        for key in oldest_first:
            if now < self._windows[key][0] and len(self._windows) < self.MAX_WINDOWS:
                break
            del self._windows[key]
