"""Dates, times and durations: ISO 8601 strings in JSON."""

from __future__ import annotations

import datetime as dt
from typing import ClassVar

from pydantic_core import core_schema

from ..kind import Errors, Walk
from ..labels import named
from ..nodes import Node, without
from .scalars import Instance, constrained

_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = "[0-9]{2}:[0-9]{2}"
_PAST: Errors = {
    "date_past": ("out_of_range", "must be in the past"),
    "date_future": ("out_of_range", "must be in the future"),
    "datetime_past": ("out_of_range", "must be in the past"),
    "datetime_future": ("out_of_range", "must be in the future"),
}
_ZONES: Errors = {
    "timezone_naive": ("wrong_format", "must have no time zone"),
    "timezone_aware": ("wrong_format", "must have a time zone, such as the 'Z' in '2024-12-31T23:59:00Z'"),
    "timezone_offset": ("wrong_format", "must have another time zone"),
}


class Temporal(Instance):
    """A type that pydantic also reads from numbers and from formats of its own."""

    pattern: ClassVar[str]
    constraints: ClassVar[tuple[str, ...]]

    def accept(self, walk: Walk, node: Node) -> Node:
        if node.get("strict") is False:
            return node
        text = core_schema.str_schema(strict=True, pattern=self.pattern)
        bare = {**without(node, "serialization", *self.constraints), "strict": False}
        ready = {**bare, "strict": True}
        parsed = named(self.or_ready(walk, {"type": "chain", "steps": [text, bare]}, ready), node["type"])
        return constrained(parsed, without(node, "serialization"), self.constraints)


class Date(Temporal):
    word = "a date"
    cls = dt.date
    pattern = f"^{_DATE}$"
    constraints = ("le", "ge", "lt", "gt", "now_op", "now_utc_offset")
    errors: ClassVar[Errors] = {
        "carmy_date": ("wrong_format", "must be an ISO 8601 date such as '2024-12-31'"),
        "date_type": ("wrong_type", "must be a date"),
        "date_parsing": ("wrong_format", "must be a date"),
        "date_from_datetime_parsing": ("wrong_format", "must be a date"),
        "date_from_datetime_inexact": ("wrong_format", "must be a date without a time"),
        **_PAST,
    }


class Time(Temporal):
    word = "a time"
    cls = dt.time
    pattern = f"^{_TIME}"
    constraints = ("le", "ge", "lt", "gt", "tz_constraint")
    errors: ClassVar[Errors] = {
        "carmy_time": ("wrong_format", "must be an ISO 8601 time such as '23:59:00'"),
        "time_type": ("wrong_type", "must be a time"),
        "time_parsing": ("wrong_format", "must be a time"),
        **_ZONES,
    }


class DateTime(Temporal):
    word = "a date and time"
    cls = dt.datetime
    pattern = f"^{_DATE}[Tt ]{_TIME}"
    constraints = ("le", "ge", "lt", "gt", "now_op", "now_utc_offset", "tz_constraint")
    errors: ClassVar[Errors] = {
        "carmy_datetime": ("wrong_format", "must be an ISO 8601 date and time such as '2024-12-31T23:59:00Z'"),
        "datetime_type": ("wrong_type", "must be a date and time"),
        "datetime_parsing": ("wrong_format", "must be a date and time"),
        "datetime_from_date_parsing": ("wrong_format", "must be a date and time"),
        "datetime_object_invalid": ("wrong_format", "must be a date and time"),
        **_PAST,
        **_ZONES,
    }


class Duration(Temporal):
    word = "a duration"
    cls = dt.timedelta
    pattern = "^[+-]?P[0-9WDTHMSYwdthmsy.,]+$"
    constraints = ("le", "ge", "lt", "gt")
    errors: ClassVar[Errors] = {
        "carmy_timedelta": ("wrong_format", "must be an ISO 8601 duration such as 'PT1H30M'"),
        "time_delta_type": ("wrong_type", "must be a duration"),
        "time_delta_parsing": ("wrong_format", "must be a duration"),
    }
