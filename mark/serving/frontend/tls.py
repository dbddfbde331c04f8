"""TLS of the listeners: a context from files, and new certificates without a restart."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from mark.domain.errors import BadInput
from mark.serving.frontend.secret_files import check_private


@dataclass(frozen=True)
class TlsFiles:
    """PEM files. With `client_ca`, clients must show a certificate that it signed (mutual TLS)."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return a context for TLS 1.2 or newer and HTTP/1.1.

        Raises BadInput if a file is missing, or if key and certificate do not match.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self._load(context)
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ssl.SSLError) as error:
                raise BadInput(_why(error), str(self.client_ca)) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def reload(self, context: ssl.SSLContext) -> None:
        """Present the files' current certificate from the next connection on; the client CA stays.

        Raises BadInput and changes nothing if the files cannot be used.
        """
        self.context()  # checked first: a mismatched pair would leave half of it in the context in use
        self._load(context)

    def _load(self, context: ssl.SSLContext) -> None:
        for path in (self.certificate, self.key):
            if not path.is_file():
                raise BadInput("no such file", str(path))
        check_private(self.key)
        try:
            # Without a password here the terminal would be asked for one, where no person can answer.
            context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            raise BadInput(f"not a certificate with its unencrypted key ({_why(error)})", str(self.key)) from None


def _why(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or "not PEM"
