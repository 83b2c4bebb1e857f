"""Runs the Python blocks of one page, in order and in one namespace, and tells what each of them printed.

A program of its own, so that what one page registers, patches or leaves open is not there for the next one.
Reads the blocks as JSON from standard input: ``[[line, code], ...]``; writes the outputs as JSON to standard output.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import types


def main() -> None:
    page = sys.argv[1]
    sys.path.insert(0, "")  # the directory it is run in, as for any program there
    module = types.ModuleType("page")
    sys.modules["page"] = module  # dataclasses and annotations look there
    outputs = []
    for line, code in json.load(sys.stdin):
        # What a file holds belongs to the module of that name, which other processes may import.
        named = re.match(r"# ([\w-]+)\.py\n", code)
        module.__name__ = named[1] if named else "page"
        if named:
            module.__file__ = os.path.abspath(f"{named[1]}.py")
            sys.modules[named[1]] = module
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            # The line numbers of the page, so that a traceback leads to it.
            exec(compile("\n" * line + code, page, "exec"), module.__dict__)
        outputs.append(printed.getvalue())
    json.dump(outputs, sys.stdout)


main()
