"""``python -m carmy_engine``: the command ``carmy`` of one interpreter, without a search of the path."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main()
