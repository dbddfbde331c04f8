"""The callers' rights: API keys and signed tokens, and the rule that an open listener is for this machine only.

A client shows its key as `authorization: Bearer KEY` or `x-api-key: KEY`, and a signed token in the same places. A key
file has a line per key, `#` begins a comment:

    KEY                      may infer
    NAME:KEY                 as above; the name stands in logs
    NAME:KEY:infer,metrics   scopes: infer, metrics, read (the controller's API), admin (all of them)
    NAME:KEY:infer:UNTIL     refused from then on, in Unix seconds

Instead of KEY the file may hold its digest: sha256- and 64 digits of SHA-256 in hex. With it the server recognizes the
key that a client shows, but a reader of the file cannot use it. Keys are long and random, so that a plain digest cannot
be guessed.

A signed token is a JWT, HS256, with `exp` and `aud`, and its scopes in `scope`, separated by spaces (RFC 7519, RFC
8693). PyJWT verifies it and accepts only that algorithm, so "none" and algorithm confusion are refused.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from mark.domain.errors import BadInput
from mark.serving.frontend.limits import Refusal
from mark.serving.frontend.secret_files import check_private

if TYPE_CHECKING:
    import ssl

INFER, METRICS, READ, ADMIN = "infer", "metrics", "read", "admin"
SCOPES = frozenset((INFER, METRICS, READ, ADMIN))
CONTROLLER = "controller"  # name of the key with which the controller reads metrics and tells prices
PEER = "peer"  # name of the key that servers of one model show each other
CONDUCTOR = "conductor"  # name of a site's inner key: conductors show it to stages, and learning servers to peers
# Balancers and orchestrators poll these without a key; the answers contain only yes or no.
HEALTH = frozenset((b"/ping", b"/v2/health/live", b"/v2/health/ready"))
_FOR_CLIENTS = frozenset((b"/", b"/docs", b"/openapi.json", b"/v2", b"/v2/repository/index", b"/invocations"))

_MOST_BYTES = 16 << 20  # of a file with keys or secrets
_SHORTEST_KEY = 16  # characters; keys are random and need not be remembered
_DIGEST = re.compile(r"sha256-([0-9a-f]{64})")
_LAST_S = 60.0  # a key is not shown in its last seconds, because clocks differ
_SHORTEST_SECRET_BYTES = 32  # RFC 7518, section 3.2
_REMEMBERED = 10_000  # number of verified tokens that are kept

_UNKNOWN: Refusal = (401, b'{"error": "a key or a token is needed"}', b"www-authenticate: Bearer\r\n")
_FORBIDDEN: Refusal = (403, b'{"error": "this key is for something else"}', b"")


class Grant(NamedTuple):
    """A caller's name and scopes."""

    name: str
    scopes: frozenset[str]
    until_s: float = float("inf")  # wall clock


@dataclass(frozen=True)
class TokenSigner:
    """The secrets of signed tokens, newest first (older ones are being phased out), and the tokens' audience."""

    secrets: Sequence[bytes] = field(repr=False)
    audience: str = "mark"

    def __post_init__(self) -> None:
        if not self.secrets:
            raise BadInput("no secret", "token secrets")
        if any(len(secret) < _SHORTEST_SECRET_BYTES for secret in self.secrets):
            raise BadInput(f"a secret has fewer than {_SHORTEST_SECRET_BYTES} bytes", "token secrets")

    @classmethod
    def from_file(cls, path: Path) -> TokenSigner:
        """Read a secret per line."""
        return cls([line.encode() for _, line in _numbered(key_text(path))])

    def sign(self, name: str, scopes: Iterable[str], until_s: float) -> str:
        """Return a token that gives `name` these scopes until `until_s` (wall clock)."""
        import jwt  # imported here: 0.2 s, only for signed tokens

        claims = {"sub": name, "aud": self.audience, "exp": int(until_s), "scope": " ".join(sorted(scopes))}
        return jwt.encode(claims, self.secrets[0], algorithm="HS256")

    def verify(self, token: bytes) -> Grant | None:
        """Return the token's grant; None if it grants nothing."""
        import jwt  # as in `sign`

        for secret in self.secrets:
            try:
                claims = jwt.decode(
                    token, secret, algorithms=["HS256"], audience=self.audience, options={"require": ["exp", "aud"]}
                )
            except jwt.InvalidSignatureError:
                continue
            except jwt.PyJWTError:
                return None
            scope = claims.get("scope", "")
            scopes = frozenset(scope.split()) if isinstance(scope, str) else frozenset[str]()
            return Grant(str(claims.get("sub", "")), scopes & SCOPES, float(claims["exp"]))
        return None


class Auth:
    """Decides the callers' rights. `admit` is the hook of `HttpServer`; `check` is for other listeners.

    It gets keys, or digests of keys as `digest_of` writes them, and keeps only their digests under a secret of this
    process. It looks keys up by these digests, which a client cannot predict, so the time of a look-up reveals nothing
    about a key. `clock` is the wall clock.
    """

    def __init__(
        self,
        keys: Mapping[str, Grant] | None = None,
        tokens: TokenSigner | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._salt = os.urandom(32)
        self._granted = self._digests(keys or {})
        self._tokens = tokens
        self._clock = clock
        self._verified: dict[bytes, Grant] = {}
        if not self._granted and tokens is None:
            raise BadInput("no key and no token secret: no request could be let in", "authentication")

    def __repr__(self) -> str:
        return f"Auth({len(self._granted)} keys, {'signed tokens' if self._tokens else 'no tokens'})"

    def renew(self, keys: Mapping[str, Grant]) -> None:
        """Accept these keys and no others from now on; tokens are unaffected. Any thread may call it."""
        self._granted = self._digests(keys)

    def admit(self, method: bytes, path: bytes, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """Return the refusal of a request, or None if it is admitted."""
        if path in HEALTH:
            return None
        return self.check(scope_of(path), headers)

    def check(self, scope: str, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """Decide as `admit` does, for a listener whose requests have no path; `headers` has lower-case names."""
        grant = self.grant(headers)
        if grant is None:
            return _UNKNOWN
        return None if scope in grant.scopes or ADMIN in grant.scopes else _FORBIDDEN

    def grant(self, headers: Mapping[bytes, bytes]) -> Grant | None:
        """Return the grant of the key or token in the headers."""
        shown = headers.get(b"x-api-key")
        if shown is None:
            scheme, _, shown = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer":
                return None
            shown = shown.strip()
        digest = self._salted(hashlib.sha256(shown).digest())
        grant = self._granted.get(digest)
        if grant is None and self._tokens is not None:
            grant = self._verified.get(digest)
            if grant is None and shown.count(b".") == 2:
                grant = self._tokens.verify(shown)
                if grant is not None:
                    if len(self._verified) >= _REMEMBERED:
                        self._verified.clear()
                    self._verified[digest] = grant
        if grant is not None and grant.until_s <= self._clock():
            self._verified.pop(digest, None)
            return None
        return grant

    def may_tell_prices(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether the caller is the controller or has the scope `admin`. Prices of others are ignored."""
        grant = self.grant(headers)
        return grant is not None and (grant.name == CONTROLLER or ADMIN in grant.scopes)

    def may_teach(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether the caller is a peer or has the scope `admin`. Other clients must not change learned state."""
        grant = self.grant(headers)
        return grant is not None and (grant.name in (PEER, CONDUCTOR) or ADMIN in grant.scopes)

    def may_manage(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether the caller has the scope `admin`. Others must not read or delete a user's learned state."""
        grant = self.grant(headers)
        return grant is not None and ADMIN in grant.scopes

    def _digests(self, keys: Mapping[str, Grant]) -> dict[bytes, Grant]:
        return {self._salted(_sha256(key)): grant for key, grant in keys.items()}

    def _salted(self, digest: bytes) -> bytes:
        return hashlib.blake2b(digest, digest_size=32, key=self._salt).digest()


def admit_own_machine(method: bytes, path: bytes, headers: Mapping[bytes, bytes]) -> Refusal | None:
    """Decide as `Auth.admit` for a listener without keys, which trusts every client that can reach it: this machine's.

    A foreign web page in a browser here can reach it too. So it answers only under this machine's own names and to no
    page of another origin. With a foreign name that points here, that page would be same-origin (DNS rebinding).
    """
    if path in HEALTH:
        return None
    why = from_elsewhere(headers.get(b"host"), headers.get(b"origin"))
    return (403, b'{"error": "%b"}' % why, b"") if why else None


def from_elsewhere(host: bytes | None, origin: bytes | None) -> bytes:
    """Return why a listener without keys refuses a request with these headers; empty if it does not.

    None stands for a missing header. A client without `host` cannot be a browser.
    """
    if host is not None and not _is_own_name(host):
        return b"without keys only this machine is answered: ask by 127.0.0.1 or localhost"
    if origin is not None and origin.partition(b"://")[2] != host:
        return b"this request comes from a page of another origin"
    return b""


@lru_cache(maxsize=64)
def _is_own_name(host: bytes) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host.decode('latin-1')}").hostname or "")
    except ValueError:
        return False


def scope_of(path: bytes) -> str:
    """Return the scope that a request needs; unknown paths need `admin`."""
    if path in _FOR_CLIENTS or path.startswith(b"/v2/models/"):
        return INFER
    return METRICS if path == b"/metrics" else ADMIN


def read_keys(path: Path) -> dict[str, Grant]:
    """Return the keys of a key file, or their digests, with their grants. A file of digests alone may be read by all.

    Raises BadInput, which names the line and never the key; also if others may change the file or read a key.
    """
    keys = parse_keys(key_text(path, secret=False), str(path))
    check_private(path, secret=not all(map(_DIGEST.fullmatch, keys)))
    return keys


def parse_keys(text: str, source: str) -> dict[str, Grant]:
    """Return the keys as `read_keys`, from the text of a key file; `source` is its name in a BadInput."""
    keys: dict[str, Grant] = {}
    for number, line in _numbered(text):
        where = f"{source}:{number}"
        parts = line.split(":")
        if len(parts) > 4:
            raise BadInput("expected KEY, NAME:KEY, NAME:KEY:SCOPES or NAME:KEY:SCOPES:UNTIL", where)
        name, key = (f"line {number}", parts[0]) if len(parts) == 1 else parts[:2]
        scopes = frozenset(parts[2].split(",")) if len(parts) >= 3 else frozenset((INFER,))
        if len(key) < _SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
            raise BadInput(f"a key is {_SHORTEST_KEY} or more printable characters without a space", where)
        if key.startswith("sha256-") and not _DIGEST.fullmatch(key):
            raise BadInput("a digest is sha256- and 64 hexadecimal digits, small ones", where)
        if not scopes <= SCOPES:
            raise BadInput(f"scopes are {', '.join(sorted(SCOPES))}", where)
        if len(parts) == 4 and not re.fullmatch(r"[0-9]{1,12}", parts[3]):
            raise BadInput("the end of a key is in whole Unix seconds", where)
        if key in keys:
            raise BadInput("a key twice", where)
        keys[key] = Grant(name, scopes, float(parts[3])) if len(parts) == 4 else Grant(name, scopes)
    if not keys:
        raise BadInput("no key in it", source)
    return keys


def digest_of(key: str) -> str:
    """Return the digest that may replace the key in a key file."""
    return key if _DIGEST.fullmatch(key) else f"sha256-{_sha256(key).hex()}"


def key_with(scope: str, keys: Mapping[str, Grant], now_unix_s: float) -> str | None:
    """Return the key to show if `scope` is needed: the first with that scope, otherwise the first with `admin`.

    None if the file has only digests, keys with other scopes, or keys that are about to end.
    """
    good = {key: one for key, one in keys.items() if not _DIGEST.fullmatch(key) and one.until_s > now_unix_s + _LAST_S}
    return next((key for wanted in (scope, ADMIN) for key, one in good.items() if wanted in one.scopes), None)


def check_exposure(
    host: str, auth: Auth | None, tls: ssl.SSLContext | None, *, tls_terminated_by_balancer: bool = False
) -> None:
    """Raise BadInput if other machines could reach `host` without keys, or keys would travel in clear."""
    if is_loopback(host):
        return
    if auth is None:
        raise BadInput("other machines can reach this address: give keys or token secrets", "host", host)
    if tls is None and not tls_terminated_by_balancer:
        raise BadInput(
            "keys would travel in clear: give a certificate, or say that a balancer in front terminates TLS",
            "host",
            host,
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`. Names are not looked up; only localhost counts as local."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _sha256(key: str) -> bytes:
    """Return the digest of a key; a written digest stands for its key."""
    digest = _DIGEST.fullmatch(key)
    return bytes.fromhex(digest[1]) if digest else hashlib.sha256(key.encode()).digest()


def key_text(path: Path, *, secret: bool = True) -> str:
    """Return the text of a regular file with keys or secrets. Raises BadInput, also from `check_private`."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading another kind of file could block or never end
            raise BadInput("not a regular file", str(path))
        check_private(path, secret=secret)
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise BadInput(f"has more than {_MOST_BYTES >> 20} MiB", str(path))
        return text.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot be read ({getattr(error, 'strerror', None) or 'not text'})", str(path)) from None


def _numbered(text: str) -> list[tuple[int, str]]:
    stripped = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in stripped if line and not line.startswith("#")]
