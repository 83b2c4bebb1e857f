"""What references in a schema name: resources, anchors and places (2020-12 Core, 8 and 9)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from .._model.type_guards import is_dict, is_list
from .keywords import misformed, subschemas

Place = tuple[str | int, ...]


class SchemaFault(ValueError):  # noqa: N818 - what it names is a fault of a schema
    """A schema is not JSON Schema 2020-12, or refers to something outside itself.

    Attributes:
        place: Where in the schema.
        reason: What is wrong there.
    """

    def __init__(self, place: Place, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason


class References:
    """The schemas in a document of checked form, found by reference.

    Args:
        document: The outermost schema.

    Raises:
        SchemaFault: A keyword has a value of the wrong form.
    """

    def __init__(self, document: Any) -> None:
        self._resources: dict[str, Any] = {"": document}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._dynamic: dict[str, dict[str, Any]] = {}
        self._known: dict[int, tuple[str, Place]] = {}
        self._index(document, "", ())

    def base_of(self, schema: Any) -> str:
        """The base URI of a schema in the document."""
        return self._known[id(schema)][0]

    def place_of(self, schema: Any) -> Place:
        """The place of a schema in the document."""
        return self._known[id(schema)][1]

    def target(self, schema: Mapping[str, Any], keyword: str) -> Any:
        """The schema that a ``$ref``, or a ``$dynamicRef`` at first, names.

        Raises:
            SchemaFault: The reference does not lead to a schema in the document.
        """
        base, place = self._known[id(schema)]
        reference: str = schema[keyword]
        uri, fragment = urldefrag(_joined(base, reference))
        fragment = unquote(fragment)
        found = self._resources.get(uri)
        if found is not None and fragment.startswith("/"):
            found = self._pointed_at(found, uri, fragment)
        elif fragment:
            found = self._anchors.get((uri, fragment))
        if found is None:
            raise SchemaFault((*place, keyword), f"{reference!r} does not point into the schema itself")
        if not isinstance(found, bool) and not is_dict(found):
            raise SchemaFault((*place, keyword), f"{reference!r} leads to something that is no schema")
        return found

    def candidates(self, schema: Mapping[str, Any], target: Any) -> Mapping[str, Any]:
        """The schemas by resource that a ``$dynamicRef`` chooses from when its first target is `target`; mostly none."""
        reference: str = schema["$dynamicRef"]
        anchor = urldefrag(reference).fragment
        is_dynamic = is_dict(target) and target.get("$dynamicAnchor") == anchor
        return self._dynamic.get(anchor, {}) if is_dynamic else {}

    def _index(self, schema: Any, base: str, place: Place) -> None:
        """Check the form of a schema and of those in it, and note what references can name."""
        if isinstance(schema, bool):
            return
        if not is_dict(schema):
            raise SchemaFault(place, "must be a schema: an object, true or false")
        wrong = misformed(schema)
        if wrong is not None:
            raise SchemaFault((*place, wrong[0]), wrong[1])
        if "$id" in schema:
            identifier: str = schema["$id"]
            base = _joined(base, identifier.removesuffix("#"))
            self._resources[base] = schema
        self._known[id(schema)] = base, place
        for keyword in ("$anchor", "$dynamicAnchor"):
            if keyword in schema:
                self._anchors[base, schema[keyword]] = schema
        if "$dynamicAnchor" in schema:
            self._dynamic.setdefault(schema["$dynamicAnchor"], {})[base] = schema
        for inner, part in subschemas(schema):
            self._index(part, base, (*place, *inner))

    def _pointed_at(self, found: Any, base: str, pointer: str) -> Any:
        """What a JSON Pointer (RFC 6901) names; None if there is no such place."""
        place: Place = ()
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if id(found) in self._known:
                base, place = self._known[id(found)]
            if is_dict(found) and name in found:
                found = found[name]
            elif is_list(found) and re.fullmatch("0|[1-9][0-9]*", name) and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
            place = (*place, name)
        if is_dict(found) and id(found) not in self._known:
            self._index(found, base, place)  # it stands under a keyword of no standard
        return found


def _joined(base: str, reference: str) -> str:
    return base + reference if reference.startswith("#") else urljoin(base, reference)
