"""For tests of what plain trio does not do; see `carmy_engine._execution.trio_internals`."""

from __future__ import annotations

import pytest

from carmy_engine._execution.trio_internals import IS_KNOWN

needs_internals = pytest.mark.skipif(not IS_KNOWN, reason="on plain trio")
