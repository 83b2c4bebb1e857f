"""Tools for models: the formats of the providers, without their libraries.

::

    openai = provider("openai", registry.specs.values())
    request["tools"] = openai.tools
    ...
    calls = openai.parse(response)
    conversation += openai.render(await engine.run_calls(calls))

Modules: `_base` (shared by all formats), `_openai`, `_anthropic`, `_gemini`, `_mcp` (one provider each), `_strict` and
`_gemini_schema` (JSON Schema as two of them require it), `_streamed_args` (arguments of Gemini that arrive as single values),
`_json_schema_tools` (traversal of JSON Schema), `_names` (names of tools), `_result_text` (results as text for a model).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from .._model.errors import DeclarationError
from .._model.spec import Catalog
from ._anthropic import Anthropic
from ._base import CallStream, Provider, Spec, neutral
from ._gemini import Gemini
from ._mcp import Mcp
from ._openai import OpenAIChat, OpenAIResponses
from ._result_text import text_of

Format = Literal["openai", "openai-responses", "anthropic", "gemini", "mcp"]
"""The formats there are."""

FORMATS: Mapping[str, type[Provider]] = {
    made.format: made for made in (OpenAIChat, OpenAIResponses, Anthropic, Gemini, Mcp)
}
"""Every format by name."""

__all__ = ["FORMATS", "CallStream", "Format", "Provider", "Spec", "neutral", "provider", "text_of"]


def provider(
    format: Format,  # noqa: A002 - what it is called everywhere
    tools: Catalog | Iterable[Spec],
    hidden: Iterable[str] = (),
) -> Provider:
    """Tools in one provider's format.

    Args:
        format: Which one.
        tools: A catalog, or specs in the order in which the model shall see them.
        hidden: Names of tools that the model is not shown; see `Provider`.

    Raises:
        DeclarationError: There is no such format.
    """
    made = FORMATS.get(format)
    if made is None:
        raise DeclarationError(f"there is no format {format!r}; there are {', '.join(FORMATS)}")
    return made(tools, hidden)
