"""A server's certificate that no client has a reason to trust, as a bouncer on AWS makes one for itself."""

from __future__ import annotations

import ssl

import trustme


def of_its_own() -> ssl.SSLContext:
    """Make a certificate for a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("i-0123456789abcdef0").configure_cert(context)
    return context
