"""The table of types: one row for each kind of core schema that pydantic makes."""

from __future__ import annotations

from collections.abc import Mapping

from .kind import Errors, Kind, Refused
from .kinds import choices, containers, functions, objects, scalars, temporal, unions, wrappers

TABLE: Mapping[str, Kind] = {
    # what JSON has
    "any": scalars.AnyValue(),
    "none": scalars.Null(),
    "bool": scalars.Boolean(),
    "int": scalars.Integer(),
    "float": scalars.Number(),
    "str": scalars.Text(),
    # what JSON has in a string
    "bytes": scalars.Binary(),
    "decimal": scalars.Exact(),
    "uuid": scalars.Unique(),
    "url": scalars.Address(),
    "multi-host-url": scalars.Address(),
    "json": scalars.EmbeddedJson(),
    "date": temporal.Date(),
    "time": temporal.Time(),
    "datetime": temporal.DateTime(),
    "timedelta": temporal.Duration(),
    # what is listed
    "literal": choices.Choice(),
    "enum": choices.Members(),
    "missing-sentinel": scalars.Missing(),
    # what holds other values
    "list": containers.List(),
    "set": containers.Set(),
    "frozenset": containers.Set(),
    "deque": containers.Items(),
    "generator": containers.Generator(),
    "tuple": containers.Tuple(),
    "named-tuple": containers.NamedTuple(),
    "dict": containers.Dict(),
    "frozendict": containers.Table(),
    "ordered-dict": containers.Table(),
    "counter": containers.Table(),
    # objects
    "model": objects.Model(),
    "model-fields": objects.ModelFields(),
    "dataclass": objects.Dataclass(),
    "dataclass-args": objects.Fields(),
    "typed-dict": objects.Typed(),
    "model-field": objects.Field(),
    "dataclass-field": objects.Field(),
    "typed-dict-field": objects.Field(),
    "named-tuple-field": objects.Field(),
    "computed-field": objects.Field(),
    "is-instance": functions.Instances(),
    # what stands round a type
    "nullable": wrappers.Nullable(),
    "default": wrappers.Default(),
    "union": unions.Union(),
    "tagged-union": unions.Tagged(),
    "chain": wrappers.Chain(),
    "lax-or-strict": wrappers.LaxOrStrict(),
    "json-or-python": wrappers.JsonOrPython(),
    "custom-error": wrappers.Named(),
    "function-after": functions.After(),
    "function-before": functions.Before(),
    "function-wrap": functions.Before(),
    "function-plain": functions.Plain(),
    "definitions": wrappers.Definitions(),
    "definition-ref": wrappers.Reference(),
    # what JSON cannot carry
    "callable": Refused("functions"),
    "is-subclass": Refused("classes"),
    "arguments": Refused("argument lists"),
    "arguments-v3": Refused("argument lists"),
    "call": Refused("calls"),
    "ellipsis": Refused("an ellipsis"),
    "complex": Refused("complex numbers"),
    "fraction": Refused("fractions", "Use Decimal, or two integers."),
    "invalid": Refused("what it names"),
}

ERRORS: Errors = {kind: words for row in TABLE.values() for kind, words in row.errors.items()}
"""The words of every row."""
