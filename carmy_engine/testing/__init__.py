"""The public kit for tests: scripted tools, a recording sink, and the published suites for executors and stores.

- `SCRIPTED_TOOLS` do exactly what a call says; `Stage` is what they act on.
- `RecordingSink` keeps every audit record.
"""

from __future__ import annotations

from ._stage import Stage
from .sinks import RecordingSink
from .tools import SCRIPTED_TOOLS, compile_scripted

__all__ = ["SCRIPTED_TOOLS", "RecordingSink", "Stage", "compile_scripted"]
