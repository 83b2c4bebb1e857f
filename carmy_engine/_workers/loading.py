"""Loading the functions of tools in a worker process."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from .._model.compiled_tool import FunctionPlace

MAIN = "__carmy_main__"
"""The name of the program's main module in a worker, where ``if __name__ == "__main__":`` is false."""


_worker: list[bool] = []


def mark_worker() -> None:
    """Record that this process is a worker."""
    _worker.append(True)


def is_worker() -> bool:
    """True in a worker process, which runs tools and starts no engine for them."""
    return bool(_worker)


def load(place: FunctionPlace) -> Any:
    """Import the module of a function; return the function.

    Raises:
        AttributeError: The module has no such name, for example because it is defined below ``if __name__ == "__main__":``.
        Exception: What the module raises.
    """
    found: Any = _module_of(place)
    for name in place.qualname.split("."):
        found = getattr(found, name)
    return found


def _module_of(place: FunctionPlace) -> ModuleType:
    name = MAIN if place.module == "__main__" else place.module
    if name in sys.modules:
        return sys.modules[name]
    if place.module == "__main__" or not _is_found(place):
        return _module_of_file(name, place)
    return importlib.import_module(name)


def _is_found(place: FunctionPlace) -> bool:
    """True if an import by name loads this very file."""
    try:
        spec = importlib.util.find_spec(place.module)
    except (ImportError, ValueError):
        return False
    if spec is None or place.file is None:
        return spec is not None
    return spec.origin is not None and Path(spec.origin).resolve() == Path(place.file).resolve()


def _module_of_file(name: str, place: FunctionPlace) -> ModuleType:
    """Load a file as the commands do: a target such as ``shop.py``, or the program itself."""
    assert place.file is not None  # `check_importable` requires one
    spec = importlib.util.spec_from_file_location(name, place.file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place.file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    if place.package:
        module.__package__ = place.package
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
