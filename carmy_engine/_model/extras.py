"""Errors for missing optional packages, which name the extra to install."""

from __future__ import annotations

import sys


def missing_extra(what: str, extra: str, missing: ModuleNotFoundError) -> ModuleNotFoundError:
    """The error to raise instead of a failed import, ``from None``.

    Args:
        what: The unusable feature, as the start of the sentence.
        extra: The extra of ``carmy-engine`` that installs the package.
        missing: The error of the import. One about a module of the project is returned unchanged.
    """
    if missing.name is None or missing.name.startswith("carmy_"):
        return missing
    package, dot, _ = missing.name.partition(".")
    found = sys.modules.get(package)
    if dot and found is not None:
        place = getattr(found, "__file__", None) or next(iter(getattr(found, "__path__", ["another module"])))
        return ModuleNotFoundError(
            f"{what} needs the package {package!r}, but {place} has its name: rename that", name=package
        )
    return ModuleNotFoundError(
        f"{what} needs the package {package!r}, which is missing: pip install 'carmy-engine[{extra}]'", name=package
    )
