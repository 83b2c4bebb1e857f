"""Errors of the database. The message is for the log; callers receive only the word `reason`."""

from __future__ import annotations

import psycopg

from ..._model.protocols import StoreError
from .._writer import UnexpectedError


class UnreachableError(StoreError):
    """The server cannot be reached, or has closed the connection."""

    reason = "unreachable"


class RefusedError(StoreError):
    """The server refuses this user, or what it tries to do."""

    reason = "refused"


class BusyError(StoreError):
    """A statement or a lock took longer than a caller should wait, or the server has no connection left."""

    reason = "locked"


class DiskFullError(StoreError):
    """There is no room on the disk of the server."""

    reason = "disk_full"


class ReadOnlyError(StoreError):
    """The server does not write: it is a standby."""

    reason = "read_only"


class NewerSchemaError(StoreError):
    """A later version has written the tables."""

    reason = "newer_version"


class LeaseLostError(StoreError):
    """The lease ran out before the reservation could be used."""

    reason = "lease_lost"


class NotTextError(StoreError):
    """A part of the request is not a text that PostgreSQL can hold."""

    reason = "not_text"


def translate(error: psycopg.Error, name: str) -> StoreError:
    """What an error of the library means for the store in the database `name`."""
    state = error.sqlstate or ""
    text = " ".join(str(error).split())
    match state[:2], state:
        case _, "53100":
            return DiskFullError(
                f"{name}: the disk of the server is full ({text}); make room, and calls will succeed again"
            )
        case _, "25006":
            return ReadOnlyError(f"{name} is read-only ({text}); the store needs the primary server")
        case _, "25P03":
            return UnreachableError(f"{name} has ended a transaction of a process that was stopped ({text})")
        case ("53" | "55" | "57", "53300" | "55P03" | "57014") | ("40", _):
            return BusyError(f"{name} is busy ({text})")
        case "28" | "3D" | "42", _:
            return RefusedError(f"{name} refuses this user or its statements ({text})")
        case ("08" | "57", _) | (_, ""):
            return UnreachableError(f"{name} cannot be reached ({text})")
        case _:
            return UnexpectedError(f"{name}: {type(error).__name__}: {text}")
