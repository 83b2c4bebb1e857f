"""The public kit for tests: scripted tools, a recording sink, and the published suites for executors and stores.

- `SCRIPTED_TOOLS` do exactly what a call says; `Stage` is what they act on (gates that hold calls, counts of effects).
- `RecordingSink` keeps every audit record.
- `check_executor` proves that something executes tools as the engine does: the client of a transport, for example.

- `check_store` proves that something remembers request_ids as the engine needs it.

Nothing here needs a test framework.
"""

from __future__ import annotations

from ._stage import Stage
from ._suite import RequirementError
from .executor import EXECUTOR_CHECKS, ExecutorCheck, MakeExecutor, check_executor
from .sinks import RecordingSink
from .store import STORE_CHECKS, MakeStore, StoreCheck, check_store
from .tools import ACTORS, SCRIPTED_TOOLS, compile_scripted

__all__ = [
    "ACTORS",
    "EXECUTOR_CHECKS",
    "SCRIPTED_TOOLS",
    "STORE_CHECKS",
    "ExecutorCheck",
    "MakeExecutor",
    "MakeStore",
    "RecordingSink",
    "RequirementError",
    "Stage",
    "StoreCheck",
    "check_executor",
    "check_store",
    "compile_scripted",
]
