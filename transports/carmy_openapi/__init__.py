"""Operations of an HTTP interface that OpenAPI 3.0 or 3.1 describes, as tools: what ``App.openapi`` is made of.

From the outside in: `OpenApi` is the source of tools that the application opens; `_operations` reads the document, `_schema` its
schemas, `_references` what it refers to; `_tools` calls an operation; `_request` writes the request, `_answers` reads the answer. `_http`
alone imports httpx2.
"""

from __future__ import annotations

from ._source import OpenApi

__all__ = ["OpenApi"]
