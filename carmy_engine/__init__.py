"""An execution engine for the tools of agents, on trio.

A map of the package, from the outside in:

- `tool`, `State`, `Arg`: declare tools. `ToolSpec`, `schema_of`: make tools by hand. `ToolRegistry`: put tools from several
  places together, and narrow them for one agent (`_tools`, `_schema`).
- `App`, `app`: put tools together with what they need; settings from code, environment and file (`_app`, `_config`).
- `Engine`, `BoundEngine`, `open_engine`: run them (`_engine`: the order of steps; `_execution`: one run; `_idempotency`: the
  meaning of a ``request_id``).
- `ExecutionRequest`, `ExecutionResult`, the events, `AgentContext`: what goes in and what comes out (`_model`).
- `AgentError`, `CarmyError` and its kinds: outcomes, and broken promises (`errors`).
- `abc`: the seams for policies, sinks, stores, authenticators and transports. `codec`: the JSON all transports share;
  `carmy_engine.transport`: what else their authors need.
- `BearerTokens`, `ApiKeys`, `Jwt`, `PeerCredentials`, `first_of`: ready-made authenticators (`_auth`).
- `carmy_engine.cli`: the command. Transports live in packages of their own (`carmy_http`), found by entry point.
"""

from __future__ import annotations

from . import abc, codec
from ._app.app import App
from ._app.conventional import app
from ._auth.api_keys import ApiKeys
from ._auth.bearer_tokens import BearerTokens
from ._auth.first_of import first_of
from ._auth.jwt import Jwt
from ._auth.peer_credentials import PeerCredentials
from ._config.settings import (
    AuthSettings,
    FramesSettings,
    HttpSettings,
    JwtSettings,
    LimitSettings,
    LogSettings,
    McpSettings,
    MetricsSettings,
    Settings,
    StoreSettings,
    WebSocketSettings,
    WorkerSettings,
)
from ._engine.engine import BoundEngine, Engine, EngineStatistics
from ._engine.opening import open_engine
from ._execution.completion import MemorySink
from ._execution.execution import ExecutionSummary
from ._execution.grace import grace
from ._execution.listing import ListedExecution, ListedState
from ._execution.model_calls import ModelCall, ModelResult, run_calls
from ._execution.policy import RateLimit, RequireToolPermission, SafePolicy
from ._model.cause import Cause
from ._model.context import AgentContext, Cancellation, Progress
from ._model.effect import Confirmation, Effect
from ._model.error_info import ErrorCategory, ErrorInfo
from ._model.events import (
    ExecutionCompleted,
    ExecutionEvent,
    ExecutionStarted,
    ToolCompleted,
    ToolLog,
    ToolProgress,
    ToolStarted,
    ToolWaiting,
)
from ._model.record import ExecutionRecord
from ._model.request import ExecutionRequest
from ._model.result import ExecutionResult, ExecutionStatus, NextAction
from ._model.run import RunContext
from ._model.settlement import Completed, Failed, NotStarted, Settlement, Unknown
from ._model.spec import Catalog, PublicSpec, ToolSpec
from ._tools.declaration import INJECTED, Arg, State, tool
from ._tools.registry import ToolRegistry
from ._tools.tool_objects import schema_of
from ._version import __version__
from .errors import (
    AgentError,
    CarmyError,
    ClosedError,
    ConfigurationError,
    DeclarationError,
    OutcomeUnknownError,
    StartupError,
    WrongLoopError,
)
from .stores.memory import MemoryStore

__all__ = [
    "INJECTED",
    "AgentContext",
    "AgentError",
    "ApiKeys",
    "App",
    "Arg",
    "AuthSettings",
    "BearerTokens",
    "BoundEngine",
    "Cancellation",
    "CarmyError",
    "Catalog",
    "Cause",
    "ClosedError",
    "Completed",
    "ConfigurationError",
    "Confirmation",
    "DeclarationError",
    "Effect",
    "Engine",
    "EngineStatistics",
    "ErrorCategory",
    "ErrorInfo",
    "ExecutionCompleted",
    "ExecutionEvent",
    "ExecutionRecord",
    "ExecutionRequest",
    "ExecutionResult",
    "ExecutionStarted",
    "ExecutionStatus",
    "ExecutionSummary",
    "Failed",
    "FramesSettings",
    "HttpSettings",
    "Jwt",
    "JwtSettings",
    "LimitSettings",
    "ListedExecution",
    "ListedState",
    "LogSettings",
    "McpSettings",
    "MemorySink",
    "MemoryStore",
    "MetricsSettings",
    "ModelCall",
    "ModelResult",
    "NextAction",
    "NotStarted",
    "OutcomeUnknownError",
    "PeerCredentials",
    "Progress",
    "PublicSpec",
    "RateLimit",
    "RequireToolPermission",
    "RunContext",
    "SafePolicy",
    "Settings",
    "Settlement",
    "StartupError",
    "State",
    "StoreSettings",
    "ToolCompleted",
    "ToolLog",
    "ToolProgress",
    "ToolRegistry",
    "ToolSpec",
    "ToolStarted",
    "ToolWaiting",
    "Unknown",
    "WebSocketSettings",
    "WorkerSettings",
    "WrongLoopError",
    "__version__",
    "abc",
    "app",
    "codec",
    "first_of",
    "grace",
    "open_engine",
    "run_calls",
    "schema_of",
    "tool",
]
