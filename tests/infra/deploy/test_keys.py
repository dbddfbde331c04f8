"""A site's keys: made once, changed in one place, and only digests where they are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.key_parameter import KeyParameter
from mark_infra.aws.site import Site
from mark_infra.deploy.keys import (
    CONDUCTOR,
    MOST_BYTES,
    SiteKey,
    SiteKeys,
    added,
    first_keys,
    for_bouncers,
    for_conductors,
    for_controller,
    key_file,
    new_key,
    parameters,
    parsed,
    revoked,
    rotated,
    with_conductor,
)

from mark.domain.errors import BadInput, CloudError, DeniedError, MarkError
from mark.serving.frontend.auth import Auth, digest_of, key_with, parse_keys
from tests.infra.conftest import REGION, MotoServer

BOUNCERS, CONTROLLER, PLAIN = (f"/mark/mark/keys/{name}" for name in ("bouncers", "controller", "plain"))


def scopes_of(text: str, key: SiteKey) -> frozenset[str]:
    grant = Auth(parse_keys(text, "keys")).grant({b"x-api-key": key.key.encode()})
    return frozenset() if grant is None else grant.scopes


def named(keys: list[SiteKey], name: str) -> list[SiteKey]:
    return [key for key in keys if key.name == name]


def test_bouncers_have_digests_of_what_they_check() -> None:
    keys = first_keys()
    text = for_bouncers(keys)
    assert not any(key.key in text for key in keys)
    assert [scopes_of(text, key) for key in keys] == [{"metrics"}, {"infer", "metrics"}, {"infer"}]
    reader = SiteKey("reader", "k" * 20, ("read", "infer"))
    assert scopes_of(for_bouncers([reader]), reader) == {"infer"}


def test_conductors_have_their_own_key_and_no_other() -> None:
    keys = with_conductor(first_keys())
    own = keys[-1]
    assert (own.name, own.scopes) == (CONDUCTOR, ("infer",))
    assert with_conductor(keys) == keys
    newer = rotated(keys, CONDUCTOR, 100, "n" * 20)
    assert for_conductors(newer).splitlines() == [f"conductor:{own.key}:infer:100", f"conductor:{'n' * 20}:infer"]
    assert scopes_of(for_bouncers(keys), own) == {"infer"}
    assert own.key not in for_bouncers(keys) + for_controller(keys)
    with pytest.raises(BadInput, match="conductors and servers that learn need one: rotate it"):
        revoked(keys, CONDUCTOR)
    with pytest.raises(BadInput, match="it needs infer: conductor"):
        with_conductor([SiteKey(CONDUCTOR, "k" * 20, ("read",))])


def test_the_controller_has_its_own_key_and_digests() -> None:
    controller, operator, _ = keys = first_keys()
    text = for_controller(keys)
    assert controller.key in text
    assert operator.key not in text
    assert [scopes_of(text, key) for key in keys] == [{"metrics"}, {"admin"}, set()]
    assert key_with("metrics", parse_keys(text, "keys"), 0.0) == controller.key


def test_rotation_keeps_the_old_key_for_a_while() -> None:
    keys = rotated(first_keys(), "client", 5000, new_key())
    old, new = named(keys, "client")
    assert (old.until_unix_s, new.until_unix_s, new.scopes) == (5000, None, ("infer",))
    assert old.key != new.key
    assert f"client:{digest_of(old.key)}:infer:5000\n" in for_bouncers(keys)
    twice = named(rotated(keys, "client", 9000, new_key()), "client")
    assert [key.until_unix_s for key in twice] == [5000, 9000, None], "an end that was said is not put off"
    assert named(rotated(keys, "client", None, new_key()), "client")[:-1] == []


def test_the_controller_shows_its_old_key_until_it_ends() -> None:
    """Bouncers know the new one then."""
    keys = rotated(first_keys(), "controller", 5000, new_key())
    old, new = named(keys, "controller")
    told = parse_keys(for_controller(keys), "keys")
    assert key_with("metrics", told, 4000.0) == old.key
    assert key_with("metrics", told, 4950.0) == new.key


def test_a_key_that_could_do_all_scrapes_with_less() -> None:
    keys = [SiteKey("controller", "k" * 20, ("admin",)), *first_keys()[1:]]
    assert named(rotated(keys, "controller", None, new_key()), "controller")[0].scopes == ("metrics",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda keys: added(keys, "client", ["infer"], new_key()), "there is such a key"),
        (lambda keys: added(keys, "a:b", ["infer"], new_key()), "must be letters"),
        (lambda keys: added(keys, "", ["infer"], new_key()), "must be letters"),
        (lambda keys: added(keys, "new", ["write"], new_key()), "scopes: are some of"),
        (lambda keys: added(keys, "new", [], new_key()), "scopes: are some of"),
        (lambda keys: rotated(keys, "absent", None, new_key()), "no key has it"),
        (lambda keys: revoked(keys, "absent"), "no key has it"),
        (lambda keys: revoked(keys, "controller"), "rotate it"),
    ],
)
def test_changes_that_cannot_be_are_one_line(change: Callable[[list[SiteKey]], Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        change(first_keys())


def test_a_key_file_is_read_as_it_was_written() -> None:
    keys = [*rotated(first_keys(), "controller", 5000, new_key()), SiteKey("two", "k" * 20, ("infer", "metrics"))]
    assert sorted(parsed(key_file(keys), "keys"), key=str) == sorted(keys, key=str)
    assert [key.name for key in parsed(key_file(keys), "keys")][:2] == ["controller", "controller"]


@pytest.fixture
def gate(moto: MotoServer) -> Gate:
    moto.reset()
    return Gate(Site("mark", REGION, "dynamodb:none"), options=moto.options)


def put(moto: MotoServer, keys: list[SiteKey]) -> None:
    """Put the keys as Terraform does, once."""
    for name, text in parameters("mark").items():
        moto.client("ssm").put_parameter(Name=name, Value=text(keys), Type="SecureString")


def value(moto: MotoServer, name: str) -> str:
    return str(moto.client("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])


def test_keys_are_made_once_and_whole(gate: Gate, tmp_path: Path) -> None:
    """An empty file was left by a process that was killed while it wrote, and is not a key file."""
    keys = SiteKeys(gate, "mark", tmp_path / "keys")
    (tmp_path / "keys").write_text("")
    made = keys.to_deploy()
    assert [(key.name, key.scopes) for key in made] == [
        ("controller", ("metrics",)),
        ("operator", ("admin",)),
        ("client", ("infer",)),
    ]
    assert keys.to_deploy() == made
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600


def test_a_site_that_gets_its_first_pipeline_admits_conductors(moto: MotoServer, gate: Gate, tmp_path: Path) -> None:
    """A plan alone changes nothing. Terraform makes the parameter, which follows later changes."""
    keys = SiteKeys(gate, "mark", tmp_path / "keys")
    put(moto, keys.to_deploy())
    wanted = keys.to_deploy(conductors=True)
    assert keys.read() == wanted[:-1]
    assert keys.file.read_text() == key_file(wanted[:-1])
    for _ in range(2):
        keys.admit(wanted, 0.0)
        assert keys.read() == keys.to_deploy(conductors=True) == wanted
    assert scopes_of(value(moto, BOUNCERS), wanted[-1]) == {"infer"}
    ours = "/mark/mark/keys/conductors"
    with pytest.raises(moto.client("ssm").exceptions.ParameterNotFound):
        value(moto, ours)
    moto.client("ssm").put_parameter(Name=ours, Value=for_conductors(wanted), Type="SecureString")
    keys.change(lambda old: rotated(old, CONDUCTOR, None, "n" * 20), 0.0)
    assert value(moto, ours) == f"conductor:{'n' * 20}:infer\n"


def test_a_new_site_with_a_pipeline_has_four_keys(gate: Gate, tmp_path: Path) -> None:
    keys = SiteKeys(gate, "mark", tmp_path / "keys")
    assert [key.name for key in keys.to_deploy(conductors=True)] == ["controller", "operator", "client", CONDUCTOR]
    assert keys.to_deploy(conductors=True) == parsed(keys.file.read_text(), "keys")
    keys.admit(keys.to_deploy(conductors=True), 0.0)  # Terraform writes them, so there is no parameter to change yet
    with pytest.raises(BadInput, match="has no keys yet"):
        keys.read()


def test_another_machine_deploys_with_the_sites_keys(moto: MotoServer, gate: Gate, tmp_path: Path) -> None:
    here, there = (SiteKeys(gate, "mark", tmp_path / name / "keys") for name in ("here", "there"))
    first = here.to_deploy()
    put(moto, first)
    assert there.to_deploy() == first
    assert there.file.read_text() == key_file(first)
    here.file.write_text(key_file(first_keys()))  # an edit by hand, or a file of an earlier site
    assert here.to_deploy() == first
    assert here.file.stat().st_mode & 0o777 == 0o600


def test_a_site_that_ends_needs_no_keys(moto: MotoServer, gate: Gate, tmp_path: Path) -> None:
    keys = SiteKeys(gate, "mark", tmp_path / "keys")
    assert len(keys.to_destroy()) == 4, "as many as Terraform may ask for"
    assert not (tmp_path / "keys").exists()
    put(moto, first := first_keys())
    assert keys.to_destroy()[:3] == first


def test_a_change_reaches_all_three_parameters(moto: MotoServer, gate: Gate, tmp_path: Path) -> None:
    put(moto, first_keys())
    keys = SiteKeys(gate, "mark", tmp_path / "keys")
    before = keys.read()
    after = keys.change(lambda all: added(all, "ci", ["infer", "read"], new_key()), 0.0)
    (made,) = named(after, "ci")
    assert keys.read() == after
    assert after[:3] == before
    assert (value(moto, BOUNCERS), value(moto, CONTROLLER)) == (for_bouncers(after), for_controller(after))
    assert scopes_of(value(moto, BOUNCERS), made) == {"infer"}
    assert not (tmp_path / "keys").exists(), "a machine that has no copy gets none"
    keys.to_deploy()
    keys.change(lambda all: revoked(all, "ci"), 0.0)
    assert scopes_of(value(moto, BOUNCERS), made) == set()
    assert made.key not in (tmp_path / "keys").read_text()


def test_keys_that_have_ended_go_with_the_next_change(moto: MotoServer, gate: Gate, tmp_path: Path) -> None:
    put(moto, rotated(first_keys(), "client", 5000, new_key()))
    keys = SiteKeys(gate, "mark", tmp_path / "keys")
    assert len(named(keys.change(lambda all: revoked(all, "operator"), 4999.0), "client")) == 2
    assert len(named(keys.change(lambda all: added(all, "a", ["infer"], new_key()), 5000.0), "client")) == 1


def test_more_keys_than_a_parameter_holds_are_refused(moto: MotoServer, gate: Gate, tmp_path: Path) -> None:
    put(moto, first_keys())
    keys = SiteKeys(gate, "mark", tmp_path / "keys")
    most = [*first_keys(), *(added([], f"c{n:02}", ["infer"], new_key())[0] for n in range(95))]
    kept = keys.change(lambda _: most, 0.0)
    assert len(value(moto, BOUNCERS).encode()) <= MOST_BYTES
    with pytest.raises(BadInput, match=r"keys: 103 are 8466 bytes as they are kept, and a parameter holds 8192"):
        keys.change(lambda all: [*all, *(added([], f"d{n}", ["infer"], new_key())[0] for n in range(5))], 0.0)
    assert keys.read() == kept


def test_without_a_site_there_is_nothing_to_change(gate: Gate, tmp_path: Path) -> None:
    keys = SiteKeys(gate, "mark", tmp_path / "keys")
    with pytest.raises(BadInput, match="has no keys yet: mark deploy makes the first: mark"):
        keys.change(lambda all: all, 0.0)
    with pytest.raises(BadInput, match="has no keys yet"):
        keys.read()


Edit = Callable[[list[SiteKey]], list[SiteKey]]


def adding(name: str) -> Edit:
    made = new_key()
    return lambda keys: added(keys, name, ["metrics", "infer"], made)


def revoking(name: str) -> Edit:
    return lambda keys: revoked(keys, name)


def rotating(name: str) -> Edit:
    made = new_key()
    return lambda keys: rotated(keys, name, None, made)


class Meanwhile:
    """An edit during which others are made, one at each look at the keys."""

    def __init__(self, keys: SiteKeys, edit: Edit, *others: Edit) -> None:
        self._keys, self._edit, self._others = keys, edit, list(others)

    def __call__(self, all: list[SiteKey]) -> list[SiteKey]:
        result = self._edit(all)
        if self._others:
            self._keys.change(self._others.pop(0), 0.0)
        return result


@pytest.fixture
def keys(moto: MotoServer, gate: Gate, tmp_path: Path) -> SiteKeys:
    put(moto, [*first_keys(), SiteKey("lost", "k" * 20, ("infer",))])
    return SiteKeys(gate, "mark", tmp_path / "keys")


@pytest.mark.parametrize(
    ("mine", "theirs", "left"),
    [
        (adding("mine"), [revoking("lost")], ["client", "controller", "mine", "operator"]),
        (revoking("lost"), [adding("b")], ["b", "client", "controller", "operator"]),
        (revoking("lost"), [revoking("lost")], ["client", "controller", "operator"]),
        (revoking("lost"), [rotating("lost")], ["client", "controller", "operator"]),
        (adding("mine"), [revoking("lost"), adding("b")], ["b", "client", "controller", "mine", "operator"]),
    ],
)
def test_changes_at_one_time_are_all_made(
    moto: MotoServer, keys: SiteKeys, mine: Edit, theirs: list[Edit], left: list[str]
) -> None:
    after = keys.change(Meanwhile(keys, mine, *theirs), 0.0)
    assert sorted(key.name for key in after) == left
    assert sorted(keys.read(), key=str) == sorted(after, key=str)
    assert value(moto, BOUNCERS) == for_bouncers(parsed(value(moto, PLAIN), "keys"))


@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        (adding("a"), adding("a"), "there is such a key"),
        (rotating("lost"), revoking("lost"), "no key has it"),
    ],
)
def test_a_change_that_another_leaves_no_room_for_is_refused(
    keys: SiteKeys, mine: Edit, theirs: Edit, said: str
) -> None:
    expected = theirs(keys.read())
    with pytest.raises(BadInput, match=said):
        keys.change(Meanwhile(keys, mine, theirs), 0.0)
    assert sorted(keys.read(), key=str) == sorted(expected, key=str)


class LosingAnswers(Gate):
    """A gate whose SDK repeats each write, as after a lost answer; others may write in between."""

    between: Callable[[], object] = staticmethod(lambda: None)

    def call(self, method: Callable[..., Any], *, patient: bool = False, **arguments: Any) -> Any:
        if "Overwrite" in arguments:
            super().call(method, patient=patient, **arguments)
            if arguments["Name"] == PLAIN:
                self.between()
        return super().call(method, patient=patient, **arguments)


def test_a_repeated_write_is_no_change_by_others(moto: MotoServer, keys: SiteKeys) -> None:
    losing = LosingAnswers(Site("mark", REGION, "dynamodb:none"), options=moto.options)
    after = SiteKeys(losing, "mark", keys.file).change(adding("mine"), 0.0)
    assert keys.read() == after
    assert moto.client("ssm").get_parameter(Name=PLAIN)["Parameter"]["Version"] == 3


def test_a_change_between_two_writes_of_one_stays(moto: MotoServer, keys: SiteKeys) -> None:
    losing = LosingAnswers(Site("mark", REGION, "dynamodb:none"), options=moto.options)
    others = iter([revoking("lost")])
    losing.between = lambda: [keys.change(edit, 0.0) for edit in others]
    after = SiteKeys(losing, "mark", keys.file).change(adding("mine"), 0.0)
    assert sorted(key.name for key in after) == ["client", "controller", "mine", "operator"]
    assert sorted(keys.read(), key=str) == sorted(after, key=str)


def test_changes_without_end_are_told(keys: SiteKeys) -> None:
    with pytest.raises(MarkError, match="changed all the time by others"):
        keys.change(Meanwhile(keys, revoking("lost"), *(adding(f"n{n}") for n in range(10))), 0.0)


def test_a_parameter_tells_its_version_with_its_text(moto: MotoServer, gate: Gate, tmp_path: Path) -> None:
    put(moto, first_keys())
    source = KeyParameter(BOUNCERS, lambda: gate)
    version, text = source()
    SiteKeys(gate, "mark", tmp_path / "keys").change(lambda all: revoked(all, "client"), 0.0)
    assert source()[0] == version + 1
    assert source()[1] != text


class Refusing:
    """A gate whose client found no credentials when it was made."""

    def client(self, service: str) -> Any:
        return self

    get_parameter = None

    def call(self, *_: object, **__: object) -> Any:
        raise DeniedError("no credentials")


def test_after_a_refusal_there_is_a_new_way(moto: MotoServer, gate: Gate) -> None:
    put(moto, first_keys())
    gates: Iterator[Any] = iter((Refusing(), gate))
    source = KeyParameter(BOUNCERS, lambda: next(gates))
    with pytest.raises(CloudError, match="no credentials"):
        source()
    assert source()[0] == 1
