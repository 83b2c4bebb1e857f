"""The entry point of the command ``carmy``.

A package of its own, because it must be running before `carmy_engine` is imported: that takes a few tenths of a second, in which
Ctrl-C would print a traceback.
"""

from __future__ import annotations

import gc
import sys
from typing import NoReturn

INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""


def main() -> NoReturn:
    """Run ``carmy`` and exit; see `carmy_engine.cli.main`.

    Raises:
        SystemExit: Always.
    """
    gc.disable()  # imports leave no garbage, and the collector would look for it for an eighth of the time
    try:
        from carmy_engine.cli import main as run  # noqa: PLC0415 - see above
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    gc.freeze()
    gc.enable()
    run()
