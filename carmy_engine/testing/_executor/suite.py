"""Where the checks for executors are collected."""

from __future__ import annotations

from .._probe import Probe
from .._suite import Suite

suite: Suite[Probe] = Suite()
"""Its subject is a `Probe` of an executor that serves the scripted tools."""
