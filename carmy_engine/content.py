"""Content that tools return, alone or in lists, and that resources and prompts give: texts, images, recordings, files, links.

Transports and providers recognise it in a result with `content_of`. `Message` is for functions declared with ``@app.prompt``; the other
classes are what `carmy_engine.abc.ResourceReader`, `PromptReader`, `Completer` and `Watch` return.
"""

from ._model.content import (
    CONTENT_KEYWORD,
    Audio,
    Content,
    File,
    Image,
    ResourceLink,
    Text,
    content_of,
    has_content,
    text_for,
)
from ._model.resources import (
    MAX_COMPLETIONS,
    Change,
    Completion,
    Message,
    PromptCatalog,
    PromptResult,
    PromptSpec,
    ReadResult,
    ResourceCatalog,
    ResourceContents,
    ResourceSpec,
)

__all__ = [
    "CONTENT_KEYWORD",
    "MAX_COMPLETIONS",
    "Audio",
    "Change",
    "Completion",
    "Content",
    "File",
    "Image",
    "Message",
    "PromptCatalog",
    "PromptResult",
    "PromptSpec",
    "ReadResult",
    "ResourceCatalog",
    "ResourceContents",
    "ResourceLink",
    "ResourceSpec",
    "Text",
    "content_of",
    "has_content",
    "text_for",
]
