"""The contract of every store of a registry's objects: the fake, a folder and S3 pass the same tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from mark.models.registry import AliasConflict, ObjectStore, Registry
from tests.models.registry_laws import check_registry

Open = Callable[[], ObjectStore]
"""Opens the same place once more, as another process would."""


class ObjectStoreContract:
    """Derive from it, and give it a fixture `opened` of type `Open` with an empty place."""

    def test_an_object_is_created_once_and_then_stays(self, opened: Open, tmp_path: Path) -> None:
        objects = opened()
        (tmp_path / "file").write_bytes(b"from a file")
        assert objects.read("a/b") is None
        assert objects.create("a/b", b"first")
        assert not opened().create("a/b", b"second")
        assert objects.create("a/c", tmp_path / "file")
        assert not objects.create("a/c", tmp_path / "file")
        assert (objects.read("a/b"), opened().read("a/c")) == (b"first", b"from a file")

    def test_an_object_is_fetched_into_a_file(self, opened: Open, tmp_path: Path) -> None:
        objects = opened()
        content = bytes(range(256)) * 10_000
        objects.create("big", content)
        assert objects.fetch("big", tmp_path / "big")
        assert (tmp_path / "big").read_bytes() == content
        assert not objects.fetch("nothing", tmp_path / "nothing")

    def test_keys_are_those_that_begin_so(self, opened: Open) -> None:
        objects = opened()
        for key in ("b/2", "b/10", "b/1/x", "a[1]", "bc"):
            objects.create(key, b"x")
        assert objects.keys("b/") == ["b/1/x", "b/10", "b/2"]
        assert objects.keys("b/1") == ["b/1/x", "b/10"]
        assert objects.keys("a[") == ["a[1]"]
        assert objects.keys("") == ["a[1]", "b/1/x", "b/10", "b/2", "bc"]
        assert objects.keys("none/") == []

    def test_of_many_that_create_one_key_at_once_one_does(self, opened: Open) -> None:
        places = [opened() for _ in range(8)]
        for key in ("one", "two", "three"):
            won: list[int] = []
            together = threading.Barrier(len(places))

            def create(n: int, key: str = key, together: threading.Barrier = together, won: list[int] = won) -> None:
                together.wait(60.0)
                if places[n].create(key, b"%d" % n):
                    won.append(n)

            threads = [threading.Thread(target=create, args=(n,)) for n in range(len(places))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60.0)
            assert len(won) == 1
            assert places[0].read(key) == b"%d" % won[0]

    def test_a_registry_keeps_versions_and_moves_aliases(self, opened: Open, tmp_path: Path) -> None:
        registry = Registry(opened(), by="someone")
        file = tmp_path / "m.py"
        ids = []
        for text in ("1", "2"):
            file.write_text(text)
            ids.append(registry.register("m", "m:M", {"m.py": file}).id)
            registry.promote("m", f"sha256:{ids[-1]}", "production")
        again = Registry(opened())
        assert {one.id for one in again.versions("m")} == set(ids)
        assert again.find("m", "production").id == ids[1]
        again.rollback("m", "production")
        assert registry.find("m", "production").id == ids[0]
        registry.fetch(registry.find("m", "production"), "m.py", tmp_path / "old")
        assert (tmp_path / "old").read_text() == "1"
        check_registry(opened())

    def test_of_two_that_promote_at_once_one_wins(self, opened: Open, tmp_path: Path) -> None:
        """Both saw the alias before; the slower one learns who was quicker, and may try again."""
        file = tmp_path / "m.py"
        ids = []
        for text in ("0", "1", "2"):
            file.write_text(text)
            ids.append(Registry(opened()).register("m", "m:M", {"m.py": file}).short)
        Registry(opened(), by="first").promote("m", ids[0], "production")
        both_have_looked = threading.Barrier(2)
        outcomes: dict[str, str] = {}

        class Waiting:
            """A store as seen by a process that pauses after it has looked."""

            def __init__(self, objects: ObjectStore) -> None:
                self.read, self.fetch, self.keys, self._create = (
                    objects.read,
                    objects.fetch,
                    objects.keys,
                    objects.create,
                )

            def create(self, key: str, content: bytes | Path) -> bool:
                both_have_looked.wait(60.0)
                return self._create(key, content)

        def promote(user: str, version: str) -> None:
            try:
                Registry(Waiting(opened()), by=user).promote("m", version, "production")
                outcomes[user] = "won"
            except AliasConflict as error:
                outcomes[user] = str(error)

        threads = [threading.Thread(target=promote, args=(user, ids[n])) for user, n in (("ann", 1), ("bob", 2))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
        winner, loser = sorted(outcomes, key=lambda user: outcomes[user] != "won")
        chosen = {"ann": ids[1], "bob": ids[2]}
        assert outcomes[winner] == "won"
        assert outcomes[loser].startswith(
            f"m@production: was moved at the same time: at {chosen[winner]}, by {winner} at "
        )
        registry = Registry(opened(), by=loser)
        assert registry.find("m", "production").short == chosen[winner]
        registry.promote("m", chosen[loser], "production")
        assert registry.find("m", "production").short == chosen[loser]
        assert [move.number for move in registry.history("m", "production")] == [1, 2, 3]
