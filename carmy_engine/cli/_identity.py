"""The identity of local callers: the host that starts the process may name a principal and grant permissions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import Parameter

from .._config.sources import PERMISSIONS_VARIABLE, PRINCIPAL_VARIABLE
from ._outcome import UsageError

Principal: TypeAlias = Annotated[
    str | None, Parameter(help=f"The principal of local callers. Default: {PRINCIPAL_VARIABLE}, or none.")
]
Permission: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--permission",
        negative="",
        help=f"A permission of local callers; may be repeated. Default: those of {PERMISSIONS_VARIABLE}, with commas between.",
    ),
]


class Identity(msgspec.Struct, frozen=True):
    """The principal and the permissions of local callers."""

    principal: str | None = None
    permissions: frozenset[str] = frozenset()


def local_identity(principal: str | None, permissions: Sequence[str] | None) -> Identity:
    """The identity from the options, or from the environment where an option is missing.

    Raises:
        UsageError: A name is empty.
    """
    if principal is None:
        principal = os.environ.get(PRINCIPAL_VARIABLE) or None
    if permissions is None:
        listed = os.environ.get(PERMISSIONS_VARIABLE, "").split(",")
        permissions = [name.strip() for name in listed if name.strip()]
    if principal == "" or "" in permissions:
        raise UsageError("--principal and --permission need a name that is not empty")
    return Identity(principal, frozenset(permissions))


def refuse_identity(identity: Identity, command: str) -> None:
    """Refuse an identity where callers are not local.

    Args:
        identity: From `local_identity`.
        command: What serves or calls over a network, as the message begins.

    Raises:
        UsageError: There is an identity.
    """
    if identity != Identity():
        raise UsageError(
            f"{command} takes no --principal, --permission, {PRINCIPAL_VARIABLE} or {PERMISSIONS_VARIABLE}:"
            " callers over a network show credentials to the application's authenticator"
        )
