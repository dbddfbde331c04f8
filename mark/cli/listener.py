"""The options of every program that listens: its address, its access control, its readiness and its end."""

from __future__ import annotations

import argparse
from pathlib import Path

from mark.cli.numbers import above_zero, port, seconds, whole


def add_address(parser: argparse.ArgumentParser) -> None:
    """Add the address to listen on and the places where readiness is announced."""
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=port, default=8080, metavar="P", help="0: any free one (default: 8080)")
    parser.add_argument("--ready-fd", type=whole(1, 65535), metavar="N", help="when ready, write its URL as JSON there")
    parser.add_argument("--ready-file", type=Path, metavar="FILE", help="when ready, write its URL as JSON there")


def add_access(parser: argparse.ArgumentParser) -> None:
    """Add the options for keys, tokens and TLS."""
    access = parser.add_argument_group("access control (off only on loopback)")
    access.add_argument("--keys", type=Path, metavar="FILE", help="API keys or their digests, one a line")
    access.add_argument(
        "--keys-parameter",
        metavar="NAME",
        help="parameter of AWS Systems Manager that --keys is a copy of: read every 30 s, and on SIGHUP",
    )
    access.add_argument("--token-secrets", type=Path, metavar="FILE", help="secrets of signed tokens, newest first")
    access.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain, PEM")
    access.add_argument("--tls-key", type=Path, metavar="FILE", help="its key, PEM")
    access.add_argument("--tls-client-ca", type=Path, metavar="FILE", help="clients must show a certificate of this CA")
    access.add_argument(
        "--tls-terminated-by-balancer", action="store_true", help="a balancer in front speaks TLS with the clients"
    )


def add_stopping(parser: argparse.ArgumentParser, drain: str, lingering: str) -> argparse._ArgumentGroup:
    """Add the options for stopping and logging and return their group, for further options.

    `drain` says in the help how the drain time is used.
    """
    end = parser.add_argument_group("stopping and readiness")
    end.add_argument("--drain-s", type=above_zero, default=30.0, metavar="S", help=f"{drain} (default: 30)")
    lingers = f"before that: not ready, still {lingering} (default: 0)"
    end.add_argument("--linger-s", type=seconds, default=0.0, metavar="S", help=lingers)
    end.add_argument("--log-requests", action="store_true", help="one line of JSON for each answer, on stderr")
    return end
