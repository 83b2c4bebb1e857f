"""The authenticator that the settings describe."""

from __future__ import annotations

from collections.abc import Iterator

from .._config.settings import AuthSettings
from .._model.errors import ConfigurationError
from .._model.protocols import Authenticator
from .first_of import first_of
from .jwt import Jwt
from .token_file import TokensFile


def is_configured(settings: AuthSettings) -> bool:
    """True if the settings name any kind of credentials."""
    jwt = settings.jwt
    return settings.tokens_file is not None or jwt.issuer is not None or jwt.jwks is not None or bool(jwt.audience)


def configured_authenticator(settings: AuthSettings) -> Authenticator | None:
    """An authenticator for the settings; None if they name no credentials.

    Raises:
        ConfigurationError: A file or a value cannot be used, a setting is missing, or a package is.
    """
    match [*_configured(settings)]:
        case []:
            return None
        case [only]:
            return only
        case several:
            return first_of(*several)


def _configured(settings: AuthSettings) -> Iterator[Authenticator]:
    if settings.tokens_file is not None:
        yield TokensFile(settings.tokens_file)
    jwt = settings.jwt
    needed = {"issuer": jwt.issuer, "audience": jwt.audience, "jwks": jwt.jwks}
    missing = [f"auth.jwt.{name}" for name, value in needed.items() if not value]
    if len(missing) == len(needed):
        return
    if jwt.issuer is None or jwt.jwks is None or missing:
        raise ConfigurationError(f"auth.jwt needs {' and '.join(missing)} as well")
    try:
        yield Jwt(
            issuer=jwt.issuer,
            audience=jwt.audience,
            algorithms=jwt.algorithms,
            jwks=jwt.jwks,
            leeway=jwt.leeway_secs,
            permissions=jwt.permissions,
        )
    except (ConfigurationError, ModuleNotFoundError) as error:
        raise ConfigurationError(f"auth.jwt: {error}") from None
