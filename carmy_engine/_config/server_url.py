"""URLs and tokens that a client uses to reach a server."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import SplitResult, urlsplit

from .._model.errors import ConfigurationError


def parse_server_url(url: str, *, schemes: Collection[str], example: str, has_query: bool = True) -> SplitResult:
    """Split the URL of a server. Its port is valid.

    Error texts do not contain the URL, because its query may be a secret.

    Args:
        url: The URL.
        schemes: The schemes that the client supports.
        example: A URL of the expected form, for messages.
        has_query: A query is allowed.

    Raises:
        ConfigurationError: The URL is malformed, has another scheme, or contains a user or a fragment.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigurationError(f"the URL of a server is not valid: {error}") from None
    if parts.scheme not in schemes or parts.hostname is None:
        raise ConfigurationError(f"the URL of a server must be like {example}")
    if parts.username is not None or parts.fragment or (parts.query and not has_query):
        parts_not_allowed = "user or fragment" if has_query else "user, query or fragment"
        raise ConfigurationError(f"the URL of a server has no {parts_not_allowed}; pass token= instead")
    return parts


def check_token(token: str) -> None:
    """Check that a bearer token can be sent in a header.

    Raises:
        ConfigurationError: The token is empty, or contains white space or characters beyond ASCII.
    """
    if token.split() != [token] or not token.isascii():
        raise ConfigurationError("a bearer token is empty, or contains white space or characters beyond ASCII")
