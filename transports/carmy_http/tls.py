"""The front end and the TLS context that the settings ask for."""

from __future__ import annotations

import ssl
from typing import Literal

from carmy_engine import ConfigurationError, HttpSettings


def front_end_of(settings: HttpSettings) -> Literal["hypercorn", "native"]:
    """The front end that serves: the one that ``server`` names, or the one that ``auto`` stands for."""
    if settings.server != "auto":
        return settings.server
    return "hypercorn" if wants_tls(settings) or settings.http2 else "native"


def wants_tls(settings: HttpSettings) -> bool:
    """Whether the settings name a certificate or a key."""
    return settings.tls_cert is not None or settings.tls_key is not None


def tls_problems(settings: HttpSettings) -> list[ConfigurationError]:
    """Contradictions between the settings of TLS, HTTP/2 and the front end, and certificate files that cannot be used."""
    found: list[ConfigurationError] = []
    if settings.server == "native":
        given = ("tls_cert", "tls_key") if wants_tls(settings) else ()
        found += [
            ConfigurationError(f"http.{name} needs http.server = auto or hypercorn: the native front end has no {what}")
            for name, what in [*((name, "TLS") for name in given), ("http2", "HTTP/2")]
            if getattr(settings, name)
        ]
    if settings.http2 and not wants_tls(settings):
        found.append(
            ConfigurationError("http.http2 needs http.tls_cert and http.tls_key: HTTP/2 is served over TLS only")
        )
    if wants_tls(settings):
        try:
            tls_context(settings)
        except ConfigurationError as problem:
            found.append(problem)
    return found


def tls_context(settings: HttpSettings) -> ssl.SSLContext:
    """TLS 1.2 or later with the certificate of the settings, and ALPN for the versions of HTTP that are served.

    Raises:
        ConfigurationError: A setting is missing, or a file is missing, unreadable or no PEM, or the key does not belong to the
            certificate. The message names the setting.
    """
    if settings.tls_cert is None:
        raise ConfigurationError("http.tls_key needs http.tls_cert: the path of a certificate in PEM")
    if settings.tls_key is None:
        raise ConfigurationError("http.tls_cert needs http.tls_key: the path of its private key in PEM")
    for name, path in (("tls_cert", settings.tls_cert), ("tls_key", settings.tls_key)):
        try:
            with open(path, "rb"):
                pass
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigurationError(f"http.{name} = {path!r} cannot be read: {reason}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["h2", "http/1.1"] if settings.http2 else ["http/1.1"])
    try:
        # A passphrase would be asked for on the terminal: an empty one makes OpenSSL refuse the key instead.
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError(
                f"http.tls_key = {settings.tls_key!r} is not the key of the certificate http.tls_cert = {settings.tls_cert!r}"
            ) from None
        raise ConfigurationError(
            f"http.tls_cert = {settings.tls_cert!r} and http.tls_key = {settings.tls_key!r} are not a certificate chain and"
            f" its unencrypted private key in PEM ({error.reason or 'malformed'})"
        ) from None
    return context
