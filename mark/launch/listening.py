"""Where a program listens, which clients it admits, and which function takes its overflow: options to parts."""

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
    """Address, keys, certificates, and where readiness is announced. Port 0 is any free one.

    `keys_parameter` names a parameter of AWS Systems Manager: where the keys in the file `keys` come from.
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
        """Certificates and keys, read and checked.

        Raises BadInput for files that cannot be used, and for an address that others reach while no client is checked.
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
        """What keeps the keys as they are in the file, or in the parameter; None without keys. Raises BadInput."""
        if auth is None or self.keys is None:
            return None
        if self.keys_parameter is None:
            return KeyPoll(auth, self.keys)
        return KeyPoll(auth, self.keys, adapter("key-parameter", "keys_parameter")(self.keys_parameter))

    def ready(self, port: int) -> str:
        """Announce that the program listens on this port; its URL."""
        scheme = "http" if self.tls_cert is None else "https"
        url = f"{scheme}://{self.host}:{port}"
        announce(Ready(url, port), self.ready_fd, self.ready_file)
        return url


@dataclass(frozen=True, kw_only=True)
class OverflowOptions:
    """Which function takes what instances cannot: the name of a Lambda function, or the URL of another server."""

    function: str | None = None
    function_key: Path | None = None

    @property
    def at_url(self) -> bool:
        """Another server, which has no bill."""
        return self.function is not None and self.function.startswith(("http://", "https://"))

    def client(self, profile: str | None = None) -> FunctionClient | None:
        """None without a function. `profile` is one of AWS's configuration. Raises BadInput for one that cannot be
        called."""
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
    """The key that a file holds, to be sent to others. Raises BadInput where it holds none, or more than one."""
    key = key_text(path).strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput("holds one key, printable and without a space, and nothing else", str(path))
    return key


def trusting(path: Path) -> ssl.SSLContext:
    """What trusts the authority whose certificates a file holds, PEM. Raises BadInput."""
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        why = getattr(error, "reason", None) or error.strerror or "not PEM"
        raise BadInput(f"no certificates of an authority ({why})", str(path)) from None
