"""The options of whatever listens: where, and who may come in."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mark.cli.numbers import port
from mark.domain.errors import BadInput

if TYPE_CHECKING:
    from mark.serving.frontend.auth import Auth
    from mark.serving.frontend.tls import TlsFiles


def add_address(parser: argparse.ArgumentParser) -> None:
    """`--host` and `--port`."""
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=port, default=8080, metavar="P", help="0: any free one (default: 8080)")


def add_door(parser: argparse.ArgumentParser) -> None:
    """Keys, tokens and TLS."""
    door = parser.add_argument_group("who may come in (off only on loopback)")
    door.add_argument("--keys", type=Path, metavar="FILE", help="API keys, one a line: KEY or NAME:KEY[:SCOPES]")
    door.add_argument("--token-secrets", type=Path, metavar="FILE", help="secrets of signed tokens, newest first")
    door.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain, PEM")
    door.add_argument("--tls-key", type=Path, metavar="FILE", help="its key, PEM")
    door.add_argument("--tls-client-ca", type=Path, metavar="FILE", help="clients must show a certificate of this CA")
    door.add_argument(
        "--tls-terminated-by-balancer", action="store_true", help="a balancer in front speaks TLS with the clients"
    )


def door_from(args: argparse.Namespace) -> tuple[TlsFiles | None, Auth | None]:
    """Certificates and keys, read and checked; BadInput where they, or an address open to others, cannot be used."""
    from mark.serving.frontend.auth import Auth, TokenSigner, check_exposure, read_keys
    from mark.serving.frontend.tls import TlsFiles

    if (args.tls_cert is None) != (args.tls_key is None):
        raise BadInput("a certificate and its key go together", "--tls-cert and --tls-key")
    if args.tls_cert is None and args.tls_client_ca is not None:
        raise BadInput("needs --tls-cert and --tls-key", "--tls-client-ca")
    tls = TlsFiles(args.tls_cert, args.tls_key, args.tls_client_ca) if args.tls_cert is not None else None
    auth = None
    if args.keys is not None or args.token_secrets is not None:
        keys = read_keys(args.keys) if args.keys is not None else None
        auth = Auth(keys, TokenSigner.from_file(args.token_secrets) if args.token_secrets is not None else None)
    context = tls.context() if tls is not None else None
    check_exposure(args.host, auth, context, tls_terminated_by_balancer=args.tls_terminated_by_balancer)
    return tls, auth


def key_from(path: Path) -> str:
    """A key to show to others, from a file."""
    try:
        key = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot be read ({getattr(error, 'strerror', None) or 'not text'})", str(path)) from None
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput("holds one key, printable and without a space, and nothing else", str(path))
    return key
