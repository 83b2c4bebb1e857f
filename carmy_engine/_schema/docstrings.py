"""What docstrings say: a tool's description, the text of each argument and of each field."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import linecache
import re
import sys
import typing
from collections.abc import Callable
from typing import Any

import docstring_parser
import typing_extensions

from .._model.type_guards import is_dict
from .annotations import QUALIFIERS

_ARGS = re.compile(r"(Args|Arguments|Parameters|Params):\s*")
_FIELDS = re.compile(r"(Args|Arguments|Parameters|Params|Attributes|Fields):\s*")


def description_of(function: Callable[..., Any]) -> str:
    """The docstring without its ``Args:`` section; empty when there is none."""
    return _without(inspect.getdoc(function) or inspect.getdoc(inspect.unwrap(function)) or "", _ARGS)


def arguments_of(function: Callable[..., Any]) -> dict[str, str]:
    """The texts of a function's ``Args:`` section, by name."""
    return _parameters(inspect.getdoc(function) or inspect.getdoc(inspect.unwrap(function)) or "")


def class_description(text: str) -> str:
    """A class's docstring without the section that lists its fields."""
    return _without(inspect.cleandoc(text), _FIELDS)


def fields_of(cls: type[Any]) -> dict[str, str]:
    """The texts of a class's fields: the string under each, else the ``Attributes:`` section; bases included."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__ in ("builtins", "pydantic.main", "msgspec", "typing", "typing_extensions"):
            continue
        doc = base.__dict__.get("__doc__")
        if isinstance(doc, str):
            found.update(_parameters(inspect.cleandoc(doc)))
        found.update(_attribute_docstrings(base))
    return found


def _without(text: str, section: re.Pattern[str]) -> str:
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if section.fullmatch(line):
            inside = True
        elif inside and line and not line[0].isspace():
            inside = False
        if not inside:
            kept.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()


def _parameters(text: str) -> dict[str, str]:
    if ":" not in text:
        return {}
    try:
        parsed = docstring_parser.parse(text, style=docstring_parser.DocstringStyle.GOOGLE)
    except docstring_parser.ParseError:
        return {}  # a docstring is prose: one that cannot be parsed describes nothing
    return {item.arg_name: " ".join(item.description.split()) for item in parsed.params if item.description}


def _attribute_docstrings(cls: type[Any]) -> dict[str, str]:
    """The strings that stand under the fields of a class, if its source is there."""
    try:
        file = inspect.getsourcefile(cls)
    except (TypeError, OSError):
        return {}  # built in, made at run time, or typed in at a prompt
    module = sys.modules.get(cls.__module__)
    lines = linecache.getlines(file, module.__dict__ if module is not None else None) if file is not None else []
    return _texts_in("".join(lines)).get(cls.__qualname__, {})


@functools.lru_cache(maxsize=32)
def _texts_in(source: str) -> dict[str, dict[str, str]]:
    """The texts of the fields of every class in a file, by qualified name.

    A file is parsed once and not once per class, which would be a second of start-up for a file with many models.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return {}
    found: dict[str, dict[str, str]] = {}
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        prefix, parent = pending.pop()
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.ClassDef):
                found[prefix + node.name] = _texts_of(node.body)
                pending.append((f"{prefix}{node.name}.", node))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                pending.append((f"{prefix}{node.name}.<locals>.", node))
            elif isinstance(node, ast.stmt):
                pending.append((prefix, node))
    return found


def _texts_of(body: list[ast.stmt]) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, text in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            found[field.target.id] = " ".join(inspect.cleandoc(text.value.value).split())
    return found


def annotated_texts(cls: Any) -> dict[str, str]:
    """Plain strings in the ``Annotated`` of a class's fields."""
    fields: Any = getattr(cls, "__pydantic_fields__", None)
    if is_dict(fields):
        return {
            name: next(item for item in field.metadata if isinstance(item, str))
            for name, field in fields.items()
            if any(isinstance(item, str) for item in field.metadata)
        }
    try:
        hints = typing_extensions.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}
    found: dict[str, str] = {}
    for name, hint in hints.items():
        while typing.get_origin(hint) in QUALIFIERS:
            hint = typing.get_args(hint)[0]  # noqa: PLW2901 - peeled
        for item in getattr(hint, "__metadata__", ()):
            if isinstance(item, str):
                found[name] = item
    return found


def described(made: dict[str, Any], cls: Any, *, is_titled: bool) -> dict[str, Any]:
    """The schema of a class with the texts of its docstrings, and without a title that it did not ask for."""
    if not is_titled:
        made.pop("title", None)
    if "$ref" in made or "properties" not in made or cls is None:
        return made
    doc = cls.__dict__.get("__doc__")
    if isinstance(doc, str) and made.get("description", inspect.cleandoc(doc)) == inspect.cleandoc(doc):
        text = class_description(doc)
        made.pop("description", None)
        if text and not text.startswith(f"{cls.__name__}("):
            made["description"] = text
    texts = {**fields_of(cls), **annotated_texts(cls)}
    for name, text in texts.items():
        for key in _wire_names(cls, name):
            if key in made["properties"]:
                made["properties"][key].setdefault("description", text)
    return made


def _wire_names(cls: Any, name: str) -> list[str]:
    fields: Any = getattr(cls, "__pydantic_fields__", None)
    if is_dict(fields) and name in fields:
        field = fields[name]
        return [
            alias
            for alias in (field.validation_alias, field.serialization_alias, field.alias, name)
            if isinstance(alias, str)
        ]
    config = getattr(cls, "__struct_config__", None)
    if config is not None:
        encoded = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
        return [encoded.get(name, name)]
    return [name]
