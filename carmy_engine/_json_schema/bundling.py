"""One form for all references, for readers that know fewer: each leads to ``#/$defs/NAME``, and nothing has a name besides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .._model.type_guards import is_dict
from .assertions import ASSERTIONS
from .keywords import ANNOTATIONS, LISTS, NAMING, SINGLE, TABLES
from .references import References

_ELSEWHERE = {"$defs", "$dynamicRef", "definitions"}
_ASSERTIONS = {*ASSERTIONS, "required"}
_UNUSUAL = re.compile("[^A-Za-z0-9_.-]+")


def bundled(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with each reference as ``#/$defs/NAME``.

    ``$dynamicRef`` becomes a reference to its first target. What references need is in ``$defs`` of the root; other definitions are
    left out.

    Raises:
        SchemaFault: The schema cannot be used.
    """
    return _Bundle(schema).root


class _Bundle:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._references = References(schema)
        self._names: dict[int, str] = {}
        self._definitions: dict[str, Any] = {}
        self._pending: list[tuple[str, Any]] = []
        made = self._rewritten(schema)
        while self._pending:
            name, target = self._pending.pop(0)
            self._definitions[name] = self._rewritten(target)
        self.root = {**made, "$defs": self._definitions} if self._definitions else made

    def _rewritten(self, schema: Any) -> Any:
        if not is_dict(schema):
            return schema
        made = {key: value for key, value in schema.items() if key not in NAMING | _ELSEWHERE}
        for keyword in SINGLE:
            if keyword in schema:
                made[keyword] = self._rewritten(schema[keyword])
        for keyword in LISTS:
            if keyword in schema:
                made[keyword] = [self._rewritten(part) for part in schema[keyword]]
        for keyword in TABLES:
            if keyword in made:
                made[keyword] = {name: self._rewritten(part) for name, part in schema[keyword].items()}
        keywords = [keyword for keyword in ("$ref", "$dynamicRef") if keyword in schema]
        references = [self._named(schema, keyword) for keyword in keywords]
        made.pop("$ref", None)
        if len(references) == 1 and self._is_mergeable(made, self._references.target(schema, keywords[0])):
            return {**references[0], **made}
        if references:
            # Beside a reference stands something that has to hold too.
            made["allOf"] = [*made.get("allOf", ()), *references]
        return made

    @staticmethod
    def _is_mergeable(beside: Mapping[str, Any], target: Any) -> bool:
        """Whether what stands beside a reference may as well stand in its target: nothing there changes its meaning."""
        known: Mapping[str, Any] = target if is_dict(target) else {}
        return all(
            key in ANNOTATIONS or (key in _ASSERTIONS and known.get(key, value) == value)
            for key, value in beside.items()
        )

    def _named(self, schema: Mapping[str, Any], keyword: str) -> dict[str, str]:
        """A reference to the definition of what `schema` refers to."""
        target = self._references.target(schema, keyword)
        name = self._names.get(id(target)) if is_dict(target) else None
        if name is None:
            wanted = _UNUSUAL.sub("_", str(schema[keyword]).rpartition("/")[2].strip("#")) or "root"
            name = wanted if wanted not in self._taken() else f"{wanted}_{len(self._names) + 1}"
            while name in self._taken():
                name += "_"
            self._names[id(target) if is_dict(target) else -len(self._names) - 1] = name
            self._pending.append((name, target))
        return {"$ref": f"#/$defs/{name}"}

    def _taken(self) -> set[str]:
        return set(self._names.values())
