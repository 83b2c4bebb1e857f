"""Runs the tools of agents on trio.

A map of the package, from the outside in:

- `tool`, `State`, `Arg`: declare tools (`_declare`, `_signature`, `_schema`, `_arguments`, `_output`).
- `ToolSpec`, `schema_of`: make tools by hand (`_tool_objects`).
- `ToolRegistry`: put tools from several places together, and narrow them for one agent (`_toolbox`).
- `App`, `app`: put tools together with what they need; settings from code, environment and file (`_app`, `_config`).
- `Engine`, `BoundEngine`, `open_engine`: run them (`_engine`, `_pipeline` and what the pipeline calls, step by step).
- `ExecutionRequest`, `ExecutionResult`, the events, `AgentContext`: what goes in and what comes out (`_model`, `_context`).
- `AgentError`, `CarmyError` and its kinds: outcomes, and broken promises (`errors`).
- `abc`: the seams for policies, sinks, stores, authenticators and transports. `codec`: the JSON all transports share;
  `carmy_engine.transport`: what else their authors need.
- `carmy_engine.cli`: the command. Transports live in packages of their own (`carmy_http`), found by entry point.
"""

from __future__ import annotations

from . import abc, codec
from ._app import App
from ._authenticate import BearerTokens
from ._calls import ModelCall, ModelResult, run_calls
from ._context import AgentContext, Cancellation, Progress
from ._conventional import app
from ._declare import INJECTED, Arg, State, tool
from ._engine import BoundEngine, Engine, EngineStatistics, open_engine
from ._events import (
    ExecutionCompleted,
    ExecutionEvent,
    ExecutionStarted,
    ToolCompleted,
    ToolProgress,
    ToolStarted,
    ToolWaiting,
)
from ._grace import grace
from ._inflight import ExecutionSummary
from ._listing import ListedExecution, ListedState
from ._model.cause import Cause
from ._model.effect import Confirmation, Effect
from ._model.error import ErrorCategory, ErrorInfo
from ._model.record import ExecutionRecord
from ._model.request import ExecutionRequest
from ._model.result import ExecutionStatus, NextAction
from ._model.run import RunContext
from ._model.spec import Catalog, PublicSpec, ToolSpec
from ._policy import RateLimit, RequireToolPermission, SafePolicy
from ._result import ExecutionResult
from ._settings import HttpSettings, LogSettings, McpSettings, Settings, StoreSettings
from ._settlement import Completed, Failed, NotStarted, Settlement, Unknown
from ._sinks import MemorySink
from ._tool_objects import schema_of
from ._toolbox import ToolRegistry
from ._version import __version__
from .errors import (
    AgentError,
    CarmyError,
    ClosedError,
    ConfigurationError,
    DeclarationError,
    OutcomeUnknownError,
    StartupError,
)
from .stores.memory import MemoryStore

__all__ = [
    "INJECTED",
    "AgentContext",
    "AgentError",
    "App",
    "Arg",
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
    "HttpSettings",
    "ListedExecution",
    "ListedState",
    "LogSettings",
    "McpSettings",
    "MemorySink",
    "MemoryStore",
    "ModelCall",
    "ModelResult",
    "NextAction",
    "NotStarted",
    "OutcomeUnknownError",
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
    "ToolProgress",
    "ToolRegistry",
    "ToolSpec",
    "ToolStarted",
    "ToolWaiting",
    "Unknown",
    "__version__",
    "abc",
    "app",
    "codec",
    "grace",
    "open_engine",
    "run_calls",
    "schema_of",
    "tool",
]
