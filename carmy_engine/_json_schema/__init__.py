"""JSON Schema 2020-12: checks the form of a schema, and evaluates values by it.

https://json-schema.org/draft/2020-12/json-schema-core and json-schema-validation. A map of the package: `keywords` (the form of each
keyword), `references` (what they name), `compiler` (schemas into nodes), `assertions` and `applicators` (what each keyword does), `evaluation` (nodes
and a value into failures), `equality` and
`patterns`; `bundling` (one form for all references).

Evaluation is lazy: a caller takes as many failures as it wants. Its time and memory are bounded by the size of the value times that
of the schema.
"""

from __future__ import annotations

from .bundling import bundled
from .compiler import Validator
from .evaluation import Failure
from .references import SchemaFault

__all__ = ["Failure", "SchemaFault", "Validator", "bundled"]
