"""The registry over a store in memory: names by content, aliases as a stack of moves, and its refusals."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from mark.domain.errors import BadInput
from mark.models.registry import AliasConflict, ModelVersion, Registry
from mark.testing.fakes import FakeObjects
from tests.models.registry_contract import ObjectStoreContract, Open
from tests.models.registry_laws import check_registry


class TestFakeObjects(ObjectStoreContract):
    @pytest.fixture
    def opened(self) -> Open:
        objects = FakeObjects()
        return lambda: objects


class Killed(BaseException):
    """No error that anything could handle."""


@pytest.fixture
def objects() -> FakeObjects:
    return FakeObjects()


@pytest.fixture
def registry(objects: FakeObjects) -> Registry:
    seconds = count()
    return Registry(objects, by="ann", unix_s=lambda: float(next(seconds)))


def registered(registry: Registry, folder: Path, text: str = "1", **more: Any) -> ModelVersion:
    (folder / "m.py").write_text(text)
    return registry.register("m", "m:M", {"m.py": folder / "m.py"}, **more)


def test_the_same_content_again_is_the_same_version(registry: Registry, tmp_path: Path) -> None:
    """The user and the time do not belong to the content, so the first registration stays."""
    first = registered(registry, tmp_path, metrics={"auc": 0.5})
    assert registered(registry, tmp_path, metrics={"auc": 0.5}) == first
    assert [version.created_at for version in registry.versions("m")] == ["1970-01-01T00:00:00.000000+00:00"]


@pytest.mark.parametrize(
    "more",
    [{"metrics": {"auc": 0.6}}, {"profile": ("m:M", b"rows")}, {"parent": "production"}, {"text": "2"}],
)
def test_other_content_is_another_version(registry: Registry, tmp_path: Path, more: dict[str, Any]) -> None:
    first = registered(registry, tmp_path, metrics={"auc": 0.5})
    registry.promote("m", first.short, "production")
    assert registered(registry, tmp_path, **({"metrics": {"auc": 0.5}} | more)).id != first.id
    assert len(registry.versions("m")) == 2


def test_a_version_says_what_it_was_made_from(registry: Registry, tmp_path: Path) -> None:
    first = registered(registry, tmp_path)
    second = registered(registry, tmp_path, "2", parent=first.short, profile=("m:M", b"rows"), metrics={"auc": 1})
    found = registry.find("m", second.short)
    assert found == second
    assert found.content.parent == first.id
    assert (found.content.model, found.content.profiled, found.content.metrics) == ("m:M", "m:M", {"auc": 1.0})
    assert (found.created_by, found.created_at[:16]) == ("ann", "1970-01-01T00:00")
    registry.fetch_profile(found, tmp_path / "profile")
    assert (tmp_path / "profile").read_bytes() == b"rows"


def test_rollbacks_take_back_one_promotion_after_the_other(registry: Registry, tmp_path: Path) -> None:
    """Promotions may come in between; a version that was rolled back does not return."""
    a, b, c, d = (registered(registry, tmp_path, text).short for text in "abcd")
    for version in (a, b, c):
        registry.promote("m", version, "production")
    registry.rollback("m", "production")
    assert registry.find("m", "production").short == b
    registry.promote("m", d, "production")
    seen = []
    for _ in range(2):
        registry.rollback("m", "production")
        seen.append(registry.find("m", "production").short)
    assert seen == [b, a]
    with pytest.raises(BadInput, match="m@production: has named nothing before"):
        registry.rollback("m", "production")
    assert len(registry.history("m", "production")) == 7


def test_to_promote_what_is_there_moves_nothing(registry: Registry, tmp_path: Path) -> None:
    version = registered(registry, tmp_path).short
    assert registry.promote("m", version, "production") == registry.promote("m", version, "production")
    assert len(registry.history("m", "production")) == 1


def test_what_is_expected_and_not_there_is_a_conflict(registry: Registry, tmp_path: Path) -> None:
    a, b = (registered(registry, tmp_path, text).short for text in "ab")
    registry.promote("m", a, "production", expect="none")
    with pytest.raises(AliasConflict, match=f"m@production: is not at none but at {a}, by ann at 1970.*nothing was"):
        registry.promote("m", b, "production", expect="none")
    with pytest.raises(AliasConflict, match=f"is not at {b} but"):
        registry.rollback("m", "production", expect=b)
    registry.promote("m", b, "production", expect=a)
    assert registry.find("m", "production").short == b


def test_a_create_whose_answer_was_lost_is_known_again(objects: FakeObjects, tmp_path: Path) -> None:
    """The SDK repeats the create and finds the object, which is our own."""

    class Repeating(FakeObjects):
        def create(self, key: str, content: bytes | Path) -> bool:
            super().create(key, content)
            return super().create(key, content)

    registry = Registry(Repeating())
    version = registered(registry, tmp_path)
    assert registry.promote("m", version.short, "production").version == version.id
    assert len(registry.history("m", "production")) == 1


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_step_everything_named_is_there(tmp_path: Path, after: bool) -> None:
    """Before the step, or right after it; and then the same is done again, to its end."""

    class Deadly(FakeObjects):
        left = math.inf

        def create(self, key: str, content: bytes | Path) -> bool:
            self.left -= 1
            if self.left == 0 and not after:
                raise Killed
            made = super().create(key, content)
            if self.left == 0:
                raise Killed
            return made

    for step in range(1, 6):  # a file, a profile, a version, a move; and all of it
        objects = Deadly()
        registry = Registry(objects, by="ann")
        registry.promote("m", registered(registry, tmp_path, "0").short, "production")
        objects.left = step
        with pytest.raises(Killed) if step < 5 else nullcontext():
            _run(registry, tmp_path)
        objects.left = math.inf
        check_registry(objects)
        _run(registry, tmp_path)
        assert len(check_registry(objects).versions("m")) == 2
        assert registry.find("m", "production").content.metrics == {"auc": 1.0}


def _run(registry: Registry, folder: Path) -> None:
    version = registered(registry, folder, "1", metrics={"auc": 1}, profile=("m:M", b"rows"))
    registry.promote("m", version.short, "production")


def test_versions_come_last_and_aliases_after_them(objects: FakeObjects, registry: Registry, tmp_path: Path) -> None:
    _run(registry, tmp_path)
    assert [key.split("/")[-2 if "aliases" in key else 2][:8] for key in objects.created[2:]] == [
        "versions",
        "producti",
    ]
    assert all(key.startswith("blobs/sha256/") for key in objects.created[:2])


def test_what_was_changed_behind_its_back_is_not_handed_out(
    objects: FakeObjects, registry: Registry, tmp_path: Path
) -> None:
    version = registered(registry, tmp_path)
    blob = next(key for key in objects.objects if key.startswith("blobs/"))
    objects.objects[blob] = b"other"
    with pytest.raises(BadInput, match=f"{version}: the registry is damaged: a file is missing, or another one"):
        registry.fetch(version, "m.py", tmp_path / "out")
    key = f"models/m/versions/{version.id}.json"
    said = json.loads(objects.objects[key])
    said["content"]["metrics"] = {"auc": 0.99}
    objects.objects[key] = json.dumps(said).encode()
    with pytest.raises(BadInput, match="the version differs from the registered one"):
        registry.find("m", version.short)
    objects.objects[key] = b"{}"
    with pytest.raises(BadInput, match=r"the registry is damaged: no version \('content'\)"):
        registry.versions("m")


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("production", "m@production: no such alias: production"),
        ("prod/uction", "alias: must be 1 to 63 letters"),
        ("sha256:12", "m@sha256:12: a version is an alias, or sha256: and at least six hex digits"),
        ("sha256:000000", "m@sha256:000000: no such version"),
    ],
)
def test_what_is_not_there_is_one_line(registry: Registry, tmp_path: Path, which: str, said: str) -> None:
    registered(registry, tmp_path)
    with pytest.raises(BadInput) as refused:
        registry.find("m", which)
    assert str(refused.value).startswith(said)


def test_what_is_spelled_almost_right_is_proposed(registry: Registry, tmp_path: Path) -> None:
    registry.promote("m", registered(registry, tmp_path).short, "production")
    with pytest.raises(BadInput, match="did you mean production"):
        registry.find("m", "prodution")
    with pytest.raises(BadInput, match="no such model"):
        registry.find("n", "production")
    with pytest.raises(BadInput, match="metric auc: a metric is a number: nan"):
        registered(registry, tmp_path, metrics={"auc": float("nan")})
    with pytest.raises(BadInput, match="name: must be 1 to 63 letters"):
        registry.register("../m", "m:M", {})


def test_the_oldest_version_comes_first(registry: Registry, tmp_path: Path) -> None:
    made = [registered(registry, tmp_path, text) for text in "cab"]
    assert registry.versions("m") == made
    assert registry.names() == ["m"]
    assert registry.aliases("m") == {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "../m"}, "name: must be 1 to 63 letters"),
        ({"alias": "prod/uction"}, "alias: must be 1 to 63 letters, .*: prod/uction"),
        ({"alias": ""}, "alias: must be 1 to 63 letters"),
        ({"parent": "staging"}, "registry: has no such model: m"),
        ({"model": "m:\udcff"}, "model: must be UTF-8"),
        ({"profile": ("m:\udcff", b"rows")}, "profile: must be UTF-8"),
        ({"files": {"w\udcff.bin": Path("w")}}, "files: a file's name must be printable UTF-8"),
        ({"metrics": {"\udcff": 1.0}}, "metrics: must be UTF-8"),
        ({"metrics": {"rows": 10**400}}, "metric rows: a metric is a number"),
    ],
)
def test_what_is_wrong_is_refused_before_any_file_is_sent(
    objects: FakeObjects, registry: Registry, wrong: dict[str, Any], said: str
) -> None:
    """No file is copied either: the file does not even exist."""
    right: dict[str, Any] = {"name": "m", "model": "m:M", "files": {"w": Path("nothing")}}
    with pytest.raises(BadInput, match=said):
        registry.register(**(right | wrong))
    assert objects.created == []


def test_a_file_that_is_gone_leaves_no_version(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be copied \(No such file or directory\)"):
        registry.register("m", "m:M", {"w": tmp_path / "nothing"})
    assert registry.names() == []


def test_an_alias_names_what_was_registered_with_it(registry: Registry, tmp_path: Path) -> None:
    """This includes a version that existed before."""
    first, second = (registered(registry, tmp_path, text, alias="production") for text in "12")
    assert registry.find("m", "production") == second
    assert registered(registry, tmp_path, "1", alias="production") == first
    assert [move.version for move in registry.history("m", "production")] == [first.id, second.id, first.id]


def test_a_name_never_leads_out_of_the_registry(registry: Registry) -> None:
    for action in (
        lambda: registry.versions(".."),
        lambda: registry.aliases(".."),
        lambda: registry.history("..", "production"),
        lambda: registry.history("m", ".."),
        lambda: registry.rollback("..", "production"),
    ):
        with pytest.raises(BadInput, match=r"(name|alias): must be 1 to 63 letters.*: \.\."):
            action()
