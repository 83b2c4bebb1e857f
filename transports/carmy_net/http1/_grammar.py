"""Patterns that heads and bodies share. Each has one class and at most one repetition, so matching is linear."""

from __future__ import annotations

import re

TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A name of RFC 9110, 5.6.2."""

CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Control characters except the tab, which no line may contain (RFC 9110, 5.5; RFC 9112, 2.2). Bare CR and LF are among them."""

BARE_LINE_END = re.compile(rb"\r(?!\n|\Z)|(?<!\r)\n")
"""A CR or LF alone, which some parsers treat as the end of a line. A CR at the end of the buffer does not match."""
