"""The public test kit: scripted tools, a recording sink, and conformance suites for executors and stores.

- `SCRIPTED_TOOLS` follow the script in their arguments; they act on a `Stage` (gates that hold calls, counts of effects).
- `RecordingSink` stores every audit record.
- `Probe` calls an executor in few words.
- `ScriptedClient` answers tools that ask the client behind their call.
- `compile_tool` makes a `CompiledTool`, which `carmy_engine.open_engine` takes, from a tool.
- `check_executor` proves that an executor, such as the client of a transport, runs tools as the engine does.
- `check_store` proves that a store keeps request_ids as the engine needs it.
- `check_checkpoints` proves that a store keeps the checkpoints of graphs.

No test framework is required.
"""

from __future__ import annotations

from .._model.compiled_tool import CompiledTool
from .._tools.declaration import compile_tool
from ._probe import Probe
from ._stage import Stage
from ._suite import RequirementError
from .checkpoints import CHECKPOINT_CHECKS, CheckpointCheck, check_checkpoints
from .client import ScriptedClient
from .executor import EXECUTOR_CHECKS, ExecutorCheck, MakeExecutor, check_executor
from .sinks import RecordingSink
from .store import STORE_CHECKS, MakeStore, StoreCheck, check_store
from .tools import ACTORS, SCRIPTED_TOOLS, compile_scripted

__all__ = [
    "ACTORS",
    "CHECKPOINT_CHECKS",
    "EXECUTOR_CHECKS",
    "SCRIPTED_TOOLS",
    "STORE_CHECKS",
    "CheckpointCheck",
    "CompiledTool",
    "ExecutorCheck",
    "MakeExecutor",
    "MakeStore",
    "Probe",
    "RecordingSink",
    "RequirementError",
    "ScriptedClient",
    "Stage",
    "StoreCheck",
    "check_checkpoints",
    "check_executor",
    "check_store",
    "compile_scripted",
    "compile_tool",
]
