"""Annotations as people write them into annotations that pydantic reads the same way on every Python.

Plain text in ``Annotated`` becomes a description, `msgspec.Meta` becomes constraints, ``typing.TypedDict`` is made
readable on Python 3.11. What must never be an argument is refused here, however deep it hides.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from typing import Annotated, Any, TypeVar, Union

import annotated_types
import msgspec
import pydantic
import typing_extensions
from pydantic.fields import FieldInfo

from .._model.context import AgentContext
from .._model.type_guards import is_list

T = TypeVar("T")

_TYPED_DICT: Any = typing_extensions.TypedDict
"""Called with fields that are known only at run time, which no type checker follows."""


class StateMarker:
    """In the metadata of an annotation: this parameter is injected, the caller never sees it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "State"


State = Annotated[T, StateMarker()]
"""``db: State[Database]``: the object the application registered for exactly this type."""


class _Injected:
    """The default of a parameter that the engine fills in; good for nothing else."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise TypeError(
            f"'.{name}' of INJECTED: the engine passes this argument; a direct call of the function must pass it too"
        )

    def __repr__(self) -> str:
        return "INJECTED"


INJECTED: Any = _Injected()
"""``db: State[Database] = INJECTED``: for type checkers, calls through an engine may leave it out."""


@dataclasses.dataclass(frozen=True, slots=True)
class Arg:
    """``order: Annotated[Order, Arg()]``: one argument named ``order``, instead of the fields of ``Order``."""


class UnusableType(Exception):  # noqa: N818 - caught and reworded where the function is known
    """A type that has no schema.

    Attributes:
        what: What is wrong, without a full stop.
        instead: What to write, a whole sentence.
    """

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(f"{what}. {instead}")
        self.what = what
        self.instead = instead


class UnresolvedType(UnusableType):
    """A type that names something not defined yet; it may be by the time the application starts."""


# Both: the backport is a class of its own on some versions of Python.
_ALIASES: tuple[Any, ...] = (
    typing_extensions.TypeAliasType,
    getattr(typing, "TypeAliasType", typing_extensions.TypeAliasType),
)


def split_annotated(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """``Annotated[T, a, b]`` → ``T, (a, b)``; aliases made with ``type`` are followed."""
    metadata: tuple[Any, ...] = ()
    while True:
        if typing.get_origin(annotation) is Annotated:
            metadata = (*annotation.__metadata__, *metadata)
            annotation = annotation.__origin__
        elif isinstance(annotation, _ALIASES):
            annotation = annotation.__value__
        else:
            return annotation, metadata


def normalise(annotation: Any) -> Any:
    """Rewrite one annotation, all the way down its type arguments.

    Raises:
        UnusableType: It hides an `AgentContext` or a `State`.
    """
    return _normalise(annotation, {})


_NOTHING: tuple[Any, ...] = (typing.NoReturn, typing.Never, typing_extensions.NoReturn, typing_extensions.Never)


def _is_context_class(annotation: Any) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, AgentContext)


def _normalise(annotation: Any, seen: dict[Any, Any]) -> Any:
    if _is_context_class(annotation):
        raise UnusableType(
            "AgentContext is part of another type", "Take it as a parameter of its own: 'ctx: AgentContext'."
        )
    if annotation in _NOTHING:
        raise UnusableType("NoReturn and Never are types without values", "Write None for 'no result'.")
    if isinstance(annotation, _ALIASES):
        if annotation not in seen:
            seen[annotation] = annotation  # it may name itself
            value = annotation.__value__
            normal = _normalise(value, seen)
            seen[annotation] = annotation if normal == value else normal
        return seen[annotation]
    origin: Any = typing.get_origin(annotation)
    if origin is Annotated:
        metadata = _metadata(annotation.__metadata__)
        inner = _normalise(annotation.__origin__, seen)
        return Annotated[(inner, *metadata)] if metadata else inner
    if typing_extensions.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _readable_typed_dict(annotation, seen)
    if origin is None or origin is typing.Literal or origin is typing_extensions.Literal:
        return annotation
    arguments = typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        members = [_normalise(member, seen) for member in arguments if member is not msgspec.UnsetType]
        return Union[tuple(members)]  # noqa: UP007 - "|" is not defined between all of them
    changed = tuple(_normalise(argument, seen) if not is_list(argument) else argument for argument in arguments)
    if all(new is old for new, old in zip(changed, arguments, strict=True)):
        return annotation
    # typing.List[...] and its kind are rebuilt by themselves, the others by their origin.
    rebuild: Any = getattr(annotation, "copy_with", None) or origin.__class_getitem__
    return rebuild(changed)


def _metadata(metadata: tuple[Any, ...]) -> tuple[Any, ...]:
    described = any(isinstance(item, FieldInfo) and item.description for item in metadata)
    found: list[Any] = []
    for item in metadata:
        if isinstance(item, StateMarker):
            raise UnusableType(
                "State is part of another type", "Take it as a parameter of its own: 'db: State[Database]'."
            )
        if isinstance(item, Arg) or item is Arg:
            continue
        if isinstance(item, str | typing_extensions.Doc):
            if not described:
                found.append(pydantic.Field(description=item if isinstance(item, str) else item.documentation))
        elif isinstance(item, msgspec.Meta):
            found.extend(_from_meta(item))
        else:
            found.append(item)
    return tuple(found)


def _from_meta(meta: msgspec.Meta) -> list[Any]:
    """The constraints and texts of a `msgspec.Meta`, in pydantic's words."""
    names = (
        "gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "title", "description", "examples",
    )  # fmt: skip
    given = {name: value for name in names if (value := getattr(meta, name)) is not None}
    if meta.extra_json_schema is not None:
        given["json_schema_extra"] = dict(meta.extra_json_schema)
    found: list[Any] = [pydantic.Field(**given)] if given else []
    if meta.tz is not None:
        found.append(annotated_types.Timezone(... if meta.tz else None))
    return found


_REQUIRED: tuple[Any, ...] = (typing.Required, typing_extensions.Required)
_NOT_REQUIRED: tuple[Any, ...] = (typing.NotRequired, typing_extensions.NotRequired)
QUALIFIERS = (*_REQUIRED, *_NOT_REQUIRED)
"""What may stand round the type of a TypedDict's field."""


def _readable_typed_dict(cls: Any, seen: dict[Any, Any]) -> Any:
    """The same TypedDict in the form pydantic asks for before Python 3.12."""
    if cls in seen:
        return seen[cls]
    # A TypedDict that contains itself would need the name of what is still being made.
    seen[cls] = dict
    hints = typing_extensions.get_type_hints(cls, include_extras=True)
    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        # String annotations hide these words from the class itself, so its own list is only the fallback.
        required, bare = name in cls.__required_keys__, hint
        while typing.get_origin(bare) in QUALIFIERS:
            required, bare = typing.get_origin(bare) in _REQUIRED, typing.get_args(bare)[0]
        field = _normalise(bare, seen)
        fields[name] = field if required else typing_extensions.NotRequired[field]
    made = _TYPED_DICT(cls.__name__, fields)
    for attribute in ("__module__", "__qualname__", "__doc__", "__pydantic_config__"):
        if hasattr(cls, attribute):
            setattr(made, attribute, getattr(cls, attribute))
    seen[cls] = made
    return made


def names_of_types(annotation: Any) -> str:
    """An annotation as people wrote it, for messages."""
    return getattr(annotation, "__qualname__", None) or repr(annotation).replace("typing.", "")
