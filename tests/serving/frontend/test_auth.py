"""Keys, tokens, scopes, and which addresses may be listened on."""

from __future__ import annotations

import logging
import os
import ssl
import time
from pathlib import Path

import jwt
import pytest

from mark.domain.errors import BadInput
from mark.serving.frontend.auth import (
    ADMIN,
    INFER,
    METRICS,
    Auth,
    Grant,
    TokenSigner,
    admit_own_machine,
    check_exposure,
    digest_of,
    key_with,
    read_keys,
    scope_of,
)

KEY, METRICS_KEY, ADMIN_KEY = "k" * 20, "m" * 20, "a" * 20
SECRET, OLD_SECRET = b"s" * 32, b"o" * 40
INFER_PATH = b"/v2/models/m/infer"


def keys() -> dict[str, Grant]:
    return {
        KEY: Grant("client", frozenset((INFER,))),
        METRICS_KEY: Grant("prometheus", frozenset((METRICS,))),
        ADMIN_KEY: Grant("root", frozenset((ADMIN,))),
    }


def bearer(shown: str | bytes) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + (shown if isinstance(shown, bytes) else shown.encode())}


def status(auth: Auth, path: bytes, headers: dict[bytes, bytes]) -> int:
    refusal = auth.admit(b"POST", path, headers)
    return 200 if refusal is None else refusal[0]


class FakeClock:
    def __init__(self) -> None:
        self.now_s = time.time()

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 401),
        (bearer(KEY), 200),
        ({b"authorization": b"bearer   " + KEY.encode()}, 200),
        ({b"x-api-key": KEY.encode()}, 200),
        (bearer(KEY[:-1]), 401),
        (bearer(KEY + "k"), 401),
        (bearer(""), 401),
        ({b"authorization": KEY.encode()}, 401),
        ({b"authorization": b"Basic " + KEY.encode()}, 401),
        ({b"x-api-key": b"wrong", **bearer(KEY)}, 401),  # the key's own header decides
        ({b"x-api-key": KEY.encode() + b", " + KEY.encode()}, 401),  # sent twice
        (bearer(b"\xff\x00"), 401),
    ],
)
def test_only_a_key_in_either_header_is_accepted(headers: dict[bytes, bytes], expected: int) -> None:
    assert status(Auth(keys()), INFER_PATH, headers) == expected


def test_unknown_clients_get_401_and_insufficient_keys_403() -> None:
    auth = Auth(keys())
    unknown, forbidden = auth.admit(b"GET", b"/metrics", {}), auth.admit(b"GET", b"/metrics", bearer(KEY))
    assert unknown is not None
    assert unknown[0] == 401
    assert b"www-authenticate: Bearer\r\n" in unknown[2]
    assert forbidden is not None
    assert forbidden[0] == 403


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        (b"/v2", INFER),
        (INFER_PATH, INFER),
        (b"/v2/models/m/ready", INFER),
        (b"/v2/models/m/feedback", INFER),
        (b"/invocations", INFER),
        (b"/metrics", METRICS),
        (b"/v2/repository/models/m/load", ADMIN),
        (b"/anything", ADMIN),
        (b"/v2x", ADMIN),
        (b"/%6detrics", ADMIN),
        (b"", ADMIN),
    ],
)
def test_each_path_needs_its_scope_and_admin_has_all(path: bytes, scope: str) -> None:
    auth = Auth(keys())
    assert scope_of(path) == scope
    for key, grant in keys().items():
        assert status(auth, path, bearer(key)) == (200 if grant.scopes & {scope, ADMIN} else 403)


def test_only_the_exact_health_paths_need_no_key() -> None:
    auth = Auth(keys())
    for path in (b"/ping", b"/v2/health/live", b"/v2/health/ready"):
        assert status(auth, path, {}) == 200
    for path in (b"/v2/health/", b"/v2/health/../models/m/infer", b"/ping/", b"/v2/models/m/ready", b"/v2/health/x"):
        assert status(auth, path, {}) == 401


def test_a_key_file_gives_names_and_scopes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# ours\n{KEY}\n\n  prometheus:{METRICS_KEY}:metrics,infer  \nroot:{ADMIN_KEY}\n")
    assert read_keys(path) == {
        KEY: Grant("line 2", frozenset((INFER,))),
        METRICS_KEY: Grant("prometheus", frozenset((METRICS, INFER))),
        ADMIN_KEY: Grant("root", frozenset((INFER,))),
    }


def test_a_digest_admits_its_key_and_not_itself(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"client:{digest_of(KEY)}:infer\nprometheus:{METRICS_KEY}:metrics\n")
    auth = Auth(read_keys(path))
    assert status(auth, INFER_PATH, bearer(KEY)) == 200
    assert status(auth, INFER_PATH, bearer(digest_of(KEY))) == 401
    assert status(auth, INFER_PATH, bearer(digest_of(KEY).removeprefix("sha256-"))) == 401
    assert status(auth, b"/metrics", bearer(METRICS_KEY)) == 200
    assert digest_of(digest_of(KEY)) == digest_of(KEY)


def test_a_key_in_a_file_may_have_an_end(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "keys"
    path.write_text(f"client:{KEY}:infer:{int(clock.now_s) + 100}\n")
    auth = Auth(read_keys(path), clock=clock)
    assert status(auth, INFER_PATH, bearer(KEY)) == 200
    clock.now_s += 101
    assert status(auth, INFER_PATH, bearer(KEY)) == 401


def test_renewed_keys_leave_no_other_one() -> None:
    auth = Auth(keys())
    auth.renew({"n" * 20: Grant("new", frozenset((INFER,)))})
    assert status(auth, INFER_PATH, bearer(KEY)) == 401
    assert status(auth, INFER_PATH, bearer("n" * 20)) == 200


def test_the_key_to_show_has_its_scope_and_time_left() -> None:
    found = keys()
    assert key_with(METRICS, found, 0.0) == METRICS_KEY
    assert key_with(INFER, found, 0.0) == KEY
    assert key_with("read", found, 0.0) == ADMIN_KEY
    assert key_with(METRICS, {digest_of(key): grant for key, grant in found.items()}, 0.0) is None
    ending = {KEY: Grant("old", frozenset((INFER,)), 1000.0), "n" * 20: Grant("new", frozenset((INFER,)))}
    assert key_with(INFER, ending, 900.0) == KEY
    assert key_with(INFER, ending, 950.0) == "n" * 20  # a minute before the end, because clocks differ


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only\n",
        "short",
        f"a:{KEY}:infer:more",
        f"a:{KEY}:infer:1:2",
        f"a:sha256-{KEY}",
        f"a:{KEY}:write",
        f"a:{KEY}:",
        f"{KEY}\nb:{KEY}",
        "with a blank in it!",
    ],
)
def test_a_bad_key_files_error_never_shows_a_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_keys(path)
    assert str(path) in str(caught.value)
    assert KEY not in str(caught.value)
    assert "short" not in str(caught.value)


def test_a_missing_or_binary_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_keys(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="not text"):
        TokenSigner.from_file(tmp_path / "binary")


def token(secret: bytes = SECRET, algorithm: str = "HS256", **claims: object) -> str:
    """Return a token that is good except for the given claims; None leaves a claim out."""
    all_claims = {"sub": "c", "aud": "mark", "exp": int(time.time()) + 100_000, "scope": "infer"} | claims
    return jwt.encode({k: v for k, v in all_claims.items() if v is not None}, secret, algorithm=algorithm)


def test_a_signed_token_lets_in_with_its_scopes() -> None:
    signer = TokenSigner([SECRET, OLD_SECRET])
    auth = Auth(tokens=signer)
    signed = signer.sign("nightly job", [INFER, METRICS], time.time() + 1000)
    granted = auth.grant(bearer(signed))
    assert granted is not None
    assert (granted.name, granted.scopes) == ("nightly job", {INFER, METRICS})
    assert status(auth, INFER_PATH, {b"x-api-key": signed.encode()}) == 200
    assert status(auth, b"/metrics", bearer(signed)) == 200
    assert status(auth, b"/v2/repository", bearer(signed)) == 403
    assert status(auth, INFER_PATH, bearer(token(OLD_SECRET))) == 200  # rotated out, still good


FOREIGN = token(b"x" * 32)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (token(), 200),
        (FOREIGN, 401),
        (token(algorithm="HS512", secret=b"s" * 64), 401),
        (token(algorithm="HS384", secret=b"s" * 48), 401),
        (jwt.encode({"aud": "mark", "exp": 1 << 40, "scope": "infer"}, "", algorithm="none"), 401),
        (token()[: token().rindex(".") + 1], 401),  # the signature cut off
        (token(exp=None), 401),
        (token(exp=1000), 401),
        (token(exp="never"), 401),
        (token(aud=None), 401),
        (token(aud="another"), 401),
        (token(aud=["another", "mark"]), 200),
        (token(nbf=int(time.time()) + 50_000), 401),
        (token(scope=None), 403),
        (token(scope=["infer"]), 403),
        (token(scope="metrics read"), 403),
        (token(scope="admin"), 200),
        ("a.b.c", 401),
        ("..", 401),
        ("eyJ.eyJ", 401),
    ],
)
def test_a_token_needs_our_signature_audience_and_time(shown: str, expected: int) -> None:
    assert status(Auth(tokens=TokenSigner([SECRET])), INFER_PATH, bearer(shown)) == expected


def test_the_algorithm_cannot_be_changed_in_the_header() -> None:
    """A good token whose header is replaced by one of another algorithm keeps no right."""
    _, claims, signature = token().split(".")
    for other in ("none", "RS256", "HS512"):
        forged = jwt.utils.base64url_encode(b'{"alg":"%b","typ":"JWT"}' % other.encode()).decode()
        for end in (signature, ""):
            assert status(Auth(tokens=TokenSigner([SECRET])), INFER_PATH, bearer(f"{forged}.{claims}.{end}")) == 401


def test_a_token_that_was_verified_still_ends_at_its_time() -> None:
    clock = FakeClock()
    auth = Auth(tokens=TokenSigner([SECRET]), clock=clock)
    shown = bearer(token(exp=int(clock.now_s) + 100))
    assert status(auth, INFER_PATH, shown) == 200
    clock.now_s += 99
    assert status(auth, INFER_PATH, shown) == 200
    clock.now_s += 2
    assert status(auth, INFER_PATH, shown) == 401


def test_a_verified_token_is_not_verified_again() -> None:
    class Counting(TokenSigner):
        calls = 0

        def verify(self, token: bytes) -> Grant | None:
            Counting.calls += 1
            return super().verify(token)

    auth = Auth(tokens=Counting([SECRET]))
    for _ in range(3):
        assert status(auth, INFER_PATH, bearer(token(exp=1 << 40))) == 200
    assert Counting.calls == 1


def test_keys_and_tokens_work_side_by_side() -> None:
    auth = Auth(keys(), TokenSigner([SECRET]))
    assert status(auth, INFER_PATH, bearer(KEY)) == 200
    assert status(auth, INFER_PATH, bearer(token())) == 200
    assert status(auth, INFER_PATH, bearer(FOREIGN)) == 401
    assert status(Auth(keys()), INFER_PATH, bearer(token())) == 401  # tokens are off


def test_nothing_prints_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    """Secrets appear neither in printed objects, nor in their attributes, nor in debug logs."""
    caplog.set_level(logging.DEBUG)
    signer = TokenSigner([SECRET])
    auth = Auth(keys(), signer)
    signed = token()
    for shown in (KEY, signed, FOREIGN, "wrong"):
        auth.admit(b"POST", INFER_PATH, bearer(shown))
    text = f"{auth!r} {signer!r} {vars(auth)!r} {caplog.text}"
    for secret in (KEY, ADMIN_KEY, SECRET.decode(), signed, FOREIGN, "wrong"):
        assert secret not in text


def test_no_way_in_and_weak_secrets_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no request could be let in"):
        Auth({})
    with pytest.raises(BadInput, match="no secret"):
        TokenSigner([])
    (tmp_path / "secrets").write_text("x" * 31)
    with pytest.raises(BadInput, match="fewer than 32") as caught:
        TokenSigner.from_file(tmp_path / "secrets")
    assert "xxx" not in str(caught.value)
    (tmp_path / "secrets").write_text("# new\n" + "x" * 32 + "\n" + "y" * 32)
    assert TokenSigner.from_file(tmp_path / "secrets").secrets == [b"x" * 32, b"y" * 32]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_this_machine_may_be_served_openly(host: str) -> None:
    check_exposure(host, None, None)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "10.0.0.1", "example.org", "localhost.example.org", "::ffff:10.0.0.1", "fe80::1%eth0"]
)
def test_other_machines_need_keys_and_tls(host: str) -> None:
    auth, tls = Auth(keys()), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(BadInput, match="other machines"):
        check_exposure(host, None, None)
    with pytest.raises(BadInput, match="other machines"):
        check_exposure(host, None, tls)
    with pytest.raises(BadInput, match="other machines"):
        check_exposure(host, None, None, tls_terminated_by_balancer=True)
    with pytest.raises(BadInput, match="in clear"):
        check_exposure(host, auth, None)
    check_exposure(host, auth, tls)
    check_exposure(host, auth, None, tls_terminated_by_balancer=True)


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        (b"127.0.0.1:8080", None, 200),
        (b"localhost", b"http://localhost", 200),
        (b"[::1]:8080", b"http://[::1]:8080", 200),
        (None, None, 200),  # HTTP/1.0: no browser
        (b"evil.example", None, 403),
        (b"evil.example:8080", b"http://evil.example:8080", 403),
        (b"10.0.0.1", None, 403),
        (b"127.0.0.1.evil.example", None, 403),
        (b"[::1", None, 403),
        (b"", None, 403),
        (b"localhost", b"http://127.0.0.1", 403),
        (b"127.0.0.1:8080", b"http://evil.example", 403),
        (b"127.0.0.1:8080", b"http://127.0.0.1:1", 403),
        (b"127.0.0.1:8080", b"null", 403),
        (None, b"http://evil.example", 403),
    ],
)
def test_without_keys_no_foreign_page_is_answered(host: bytes | None, origin: bytes | None, expected: int) -> None:
    """This covers a foreign name that points here (DNS rebinding), and a page of another origin."""
    headers = {name: value for name, value in ((b"host", host), (b"origin", origin)) if value is not None}
    refusal = admit_own_machine(b"POST", INFER_PATH, headers)
    assert (200 if refusal is None else refusal[0]) == expected
    assert admit_own_machine(b"GET", b"/v2/health/ready", headers) is None


@pytest.mark.parametrize("name", ["/dev/zero", "fifo", "."])
def test_a_key_file_that_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    """Some would be read until memory ends, others would block."""
    os.mkfifo(tmp_path / "fifo")
    for read in (read_keys, TokenSigner.from_file):
        with pytest.raises(BadInput, match="not a regular file"):
            read(tmp_path / name)


def test_a_key_file_has_a_size(tmp_path: Path) -> None:
    with (tmp_path / "keys").open("wb") as file:
        file.truncate(17 << 20)
    with pytest.raises(BadInput, match="has more than 16 MiB"):
        read_keys(tmp_path / "keys")


def test_prices_are_told_by_the_controller_and_admins_alone() -> None:
    keys = {name * 16: Grant(name, frozenset((METRICS,))) for name in "ab"}
    keys |= {"c" * 16: Grant("controller", frozenset((METRICS,))), "d" * 16: Grant("d", frozenset((ADMIN,)))}
    auth = Auth(keys)
    may = [auth.may_tell_prices({b"x-api-key": name.encode() * 16}) for name in "abcde"]
    assert may == [False, False, True, True, False]


def test_peers_and_admins_alone_change_what_was_learned() -> None:
    keys = {name * 16: Grant(name, frozenset((INFER,))) for name in "ab"}
    keys |= {"c" * 16: Grant("peer", frozenset((INFER,))), "d" * 16: Grant("d", frozenset((ADMIN,)))}
    keys |= {"e" * 16: Grant("conductor", frozenset((INFER,)))}  # the inner key of a site
    auth = Auth(keys)
    may = [auth.may_teach({b"x-api-key": name.encode() * 16}) for name in "abcdef"]
    assert may == [False, False, True, True, True, False]
