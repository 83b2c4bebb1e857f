"""What heads and bodies have in common. Each pattern has one class and at most one repetition, so it is linear."""

from __future__ import annotations

import re

TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A name of RFC 9110, 5.6.2."""

CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What no line may contain (RFC 9110, 5.5; RFC 9112, 2.2): control characters but for the tab. Bare CR and LF are among them."""

BARE_LINE_END = re.compile(rb"\r(?!\n|\Z)|(?<!\r)\n")
"""A CR or LF alone, which some parsers take for the end of a line. A CR at the end waits for what follows."""
