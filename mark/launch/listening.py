"""Make parts from options: a program's address, the clients it admits, and the function for its overflow."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from mark.config.plugins import adapter
from mark.domain.errors import BadInput
from mark.launch.ready import Ready, announce
from mark.serving.frontend.auth import Auth, TokenSigner, check_exposure, key_text, read_keys
from mark.serving.frontend.key_poll import KeyPoll
from mark.serving.frontend.tls import TlsFiles
from mark.serving.overflow.functions import FunctionClient
from mark.serving.overflow.http_functions import HttpFunctions


@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """Address, keys, certificates, and where readiness is announced. Port 0 means any free port.

    `keys_parameter` names the parameter of AWS Systems Manager from which the file `keys` gets its keys.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    keys: Path | None = None
    keys_parameter: str | None = None
    token_secrets: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    tls_terminated_by_balancer: bool = False
    ready_fd: int | None = None
    ready_file: Path | None = None

    def access(self) -> tuple[TlsFiles | None, Auth | None]:
        """Read and check the certificates and keys.

        Raises BadInput for files that cannot be used, and for an address that others can reach without client checks.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            raise BadInput("a certificate and its key go together", "tls_cert and tls_key")
        if self.tls_cert is None and self.tls_client_ca is not None:
            raise BadInput("needs `tls_cert` and `tls_key`", "tls_client_ca")
        if self.keys_parameter is not None and self.keys is None:
            raise BadInput("needs `keys`, the file in which a copy is kept", "keys_parameter")
        tls = None
        if self.tls_cert is not None and self.tls_key is not None:
            tls = TlsFiles(self.tls_cert, self.tls_key, self.tls_client_ca)
        auth = None
        if self.keys is not None or self.token_secrets is not None:
            keys = read_keys(self.keys) if self.keys is not None else None
            auth = Auth(keys, TokenSigner.from_file(self.token_secrets) if self.token_secrets is not None else None)
        context = tls.context() if tls is not None else None
        check_exposure(self.host, auth, context, tls_terminated_by_balancer=self.tls_terminated_by_balancer)
        return tls, auth

    def key_poll(self, auth: Auth | None) -> KeyPoll | None:
        """Return the poll that updates the keys from the file or the parameter; None without keys. Raises BadInput."""
        if auth is None or self.keys is None:
            return None
        if self.keys_parameter is None:
            return KeyPoll(auth, self.keys)
        return KeyPoll(auth, self.keys, adapter("key-parameter", "keys_parameter")(self.keys_parameter))

    def ready(self, port: int) -> str:
        """Announce that the program listens on this port, and return its URL."""
        scheme = "http" if self.tls_cert is None else "https"
        url = f"{scheme}://{self.host}:{port}"
        announce(Ready(url, port), self.ready_fd, self.ready_file)
        return url


@dataclass(frozen=True, kw_only=True)
class OverflowOptions:
    """The function for requests that instances cannot take: a Lambda function's name, or another server's URL."""

    function: str | None = None
    function_key: Path | None = None

    @property
    def at_url(self) -> bool:
        """Whether the function is another server, which does not bill."""
        return self.function is not None and self.function.startswith(("http://", "https://"))

    def client(self, profile: str | None = None) -> FunctionClient | None:
        """Return a client of the function; None without one. Raises BadInput for a function that cannot be called.

        `profile` is a profile of AWS's configuration.
        """
        name, at_url = self.function, self.at_url
        if self.function_key is not None and not at_url:
            raise BadInput("is for a `function` at a URL; AWS's keys are those of its environment", "function_key")
        if profile is not None and (name is None or at_url):
            raise BadInput("is for the name of a Lambda `function`", "AWS profile", profile)
        if name is None:
            return None
        if at_url:
            return HttpFunctions(name, key=None if self.function_key is None else key_from(self.function_key))
        client: FunctionClient = adapter("lambda-functions", "function")(name, profile)
        return client


def key_from(path: Path) -> str:
    """Return the single key in a file, to send to other servers. Raises BadInput for any other number of keys."""
    key = key_text(path).strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput("holds one key, printable and without a space, and nothing else", str(path))
    return key


def trusting(path: Path) -> ssl.SSLContext:
    """Return a context that trusts the authority whose PEM certificates a file holds. Raises BadInput."""
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        why = getattr(error, "reason", None) or error.strerror or "not PEM"
        raise BadInput(f"no certificates of an authority ({why})", str(path)) from None
