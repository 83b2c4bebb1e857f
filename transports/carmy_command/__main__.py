"""``python -m carmy_command``: the command ``carmy`` of one interpreter, without a search of the path."""

from __future__ import annotations

from carmy_command import main

main()
