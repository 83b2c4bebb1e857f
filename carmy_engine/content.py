"""Content that tools return, alone or in lists, and that resources and prompts give: texts, images, recordings, files, links.

Transports and providers recognise it in a result with `content_of`.
"""

from ._model.content import CONTENT_KEYWORD, Audio, Content, File, Image, ResourceLink, Text, content_of, has_content

__all__ = [
    "CONTENT_KEYWORD",
    "Audio",
    "Content",
    "File",
    "Image",
    "ResourceLink",
    "Text",
    "content_of",
    "has_content",
]
