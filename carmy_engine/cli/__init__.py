"""The command ``carmy``, and the same commands for one application (`App.run`).

Needs the extra ``cli``; nothing else in the package does.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from .._app.app import App

try:
    from ._commands import run
except ModuleNotFoundError as missing:
    # Only what the extra brings; anything else that is missing is a fault to be seen.
    if missing.name is None or missing.name.partition(".")[0] != "cyclopts":
        raise

    def run(app: App | None, argv: Sequence[str]) -> int:
        """In place of the real one."""
        sys.stderr.write("carmy: the command line needs the package 'cyclopts': pip install 'carmy-engine[cli]'\n")
        return 1


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``carmy`` and exit.

    Raises:
        SystemExit: Always; 0 for success, 1 for failure, 2 for a wrong command line.
    """
    _run(None, argv)


def run_app(app: App, argv: Sequence[str] | None = None) -> NoReturn:
    """Run the commands over one application and exit; see `main`."""
    gc.freeze()  # what the program has imported stays, and a full collection would look through it again, for 30 ms
    _run(app, argv)


def _run(app: App | None, argv: Sequence[str] | None) -> NoReturn:
    sys.exit(run(app, sys.argv[1:] if argv is None else argv))
