"""`mark personal retrain` behind a features stage: the model becomes a version, and its heads learn everything."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mark.cli.main import main
from mark.models.registry_place import open_registry
from mark.serving.feedback.log import FeedbackLog
from mark.serving.feedback.port import RecordedBody
from mark.serving.learned.facts import Fact, line_of
from mark.serving.learned.shared import snapshot_in
from mark.serving.personal.notes import HeadFact, key_name
from tests.personal.logs import low_rank_log
from tests.serving.personal.made import FILE, Songs
from tests.serving.personal.test_logged_inputs import NOTHING, observed
from tests.serving.test_server_process import served

MODEL = """
import json
import mark
import numpy as np

class Tower(mark.Model):
    def load(self):
        with open("vectors.json") as file:
            self.vectors = json.load(file)

    def predict(self, batch):
        return [np.array(self.vectors[item["song"]]) for item in batch]
"""
# The command writes the items' true vectors in the place of random ones.
TRAIN = """
import csv, json, os, shutil
rows = list(csv.DictReader(open(os.environ["MARK_RATINGS"])))
assert set(rows[0]) == {"user", "item", "rating", "t_seconds"}
present = json.load(open(os.environ["MARK_MODEL_PATH"] + "/vectors.json"))
assert all(json.loads(row["item"])["song"] in present for row in rows)
shutil.copy("better.json", os.environ["MARK_OUT"] + "/vectors.json")
"""
Captured = pytest.CaptureFixture[str]


def section(*command: str) -> str:
    said = ", ".join(f'"{one}"' for one in command)
    return f'[personal.retrain]\ncommand = [{said}]\nmetric = "rmse"\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a service whose model gives random vectors, and the log of 600 rewards for inputs."""
    monkeypatch.delenv("MARK_REGISTRY", raising=False)
    monkeypatch.setenv("MARK_CACHE_DIR", str(tmp_path / "cache"))
    draw = np.random.default_rng(3)
    true = np.random.default_rng(0)
    true.normal(size=(10, 2))  # tastes, which come first
    songs = true.normal(size=(60, 2))
    for name, vectors in (("vectors", draw.normal(size=(60, 2))), ("better", songs)):
        (tmp_path / f"{name}.json").write_text(json.dumps({f"i{at}": row.tolist() for at, row in enumerate(vectors)}))
    (tmp_path / "tower.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(TRAIN)
    files = {name: tmp_path / name for name in ("tower.py", "vectors.json")}
    registry(tmp_path).register("tower", "tower:Tower", files, alias="production")
    text = FILE.replace('"tower:Tower"', '"registry:tower@production"') + section(sys.executable, "train.py")
    (tmp_path / "songs.toml").write_text(text)
    write_log(tmp_path / "feedback", 600)
    return tmp_path


def write_log(folder: Path, count: int, body: RecordedBody = NOTHING) -> None:
    """Write this many rewards; with another `body` they are feedback on answers to it."""
    log, sink = low_rank_log(keys=10, rows=600), FeedbackLog(folder, 10**8)
    rows = zip(log.keys.tolist(), log.items.tolist(), log.rewards.tolist(), strict=True)
    pieces = [
        observed(f"c-{at}", body, own=body is NOTHING, user=f"u{key}", input={"song": f"i{item}"}, reward=reward)
        for at, (key, item, reward) in enumerate(rows)
    ]
    sink.received(pieces[:count], [], 10.0)
    sink.close()


def registry(place: Path) -> Any:
    return open_registry(str(place / ".mark-registry"))


def retrained(place: Path, capsys: Captured, *options: str) -> dict[str, Any]:
    assert main(["personal", "retrain", str(place / "songs.toml"), "--json", "-", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_better_model_is_promoted_and_its_servers_have_all_heads(place: Path, capsys: Captured) -> None:
    before = registry(place).find("tower", "production")
    found = retrained(place, capsys)

    assert (found["promoted"], found["unlogged"]) == (True, 0)
    assert found["new"]["error"] < 0.8 * found["present"]["error"]
    version = registry(place).find("tower", "production")
    assert found["new"]["version"] == str(version)
    assert version.content.parent == before.id
    assert version.content.model == "tower:Tower"
    with served(place, service="songs.toml") as (process, url), Songs(url) as songs:
        shown = songs.shown("u1")
        assert shown["observations"] > 0
        assert len(shown["weights"]) == 4
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    again = retrained(place, capsys)
    assert (again["promoted"], again["why_not"]) == (False, "it is the present model")


def test_new_heads_lack_a_deleted_key_whose_lines_a_kill_left(place: Path, capsys: Captured) -> None:
    journal = place / "feedback/2/learned-00000001.jsonl"
    journal.parent.mkdir()
    u1 = key_name("u1")
    journal.write_bytes(line_of(Fact("w", 1, 10.0, "a", HeadFact(u1, 1e12).to_json())))
    assert retrained(place, capsys)["promoted"]
    snapshot = snapshot_in((place / "feedback/made/learned.snapshot").read_bytes())
    heads = json.loads(snapshot.state.partition(b"\n")[2])
    assert len(heads["keys"]) == 9
    assert u1 not in heads["keys"]
    assert heads["tombstones"] == {u1: 1e12}


def test_reward_whose_input_is_not_in_the_log_is_counted(place: Path, capsys: Captured) -> None:
    write_log(place / "other", 600)
    write_log(place / "other", 7, RecordedBody("application/json", 9999, None, "ab" * 32))
    assert main(["personal", "retrain", str(place / "songs.toml"), "--log", str(place / "other")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Promoted: production names the new version." in out
    assert "The log lacks the inputs of 7 rewards, which were left out." in out


@pytest.mark.parametrize(
    ("old", "new", "options", "message"),
    [
        ("registry:tower@production", "tower:Tower", [], "must be an alias of a registry"),
        ("@production", "@sha256:abcdef0", [], "names one version for ever"),
        (
            "[personal.retrain]",
            "[personal.retrain]\n",
            ["--log", "FEW"],
            "has 99 observations with their inputs, and 0",
        ),
        ("[personal.retrain]", "[personal.retrain]\n", ["--held-out", "0"], "leaves no observation to judge"),
        ("[personal.retrain]", "[personal.retrain]\n", ["--name", "x"], "is of a table"),
        (section(sys.executable, "train.py"), "", [], "needs a command, because mark trains no model"),
        ("train.py", "broken.py", [], "the new model: fails: JSONDecodeError"),
        (
            "[stage.tower]",
            '[stage.first]\nmodel = "tower:Tower"\n[stage.tower]\nafter = ["first"]',
            [],
            "gets its input",
        ),
    ],
)
def test_model_that_cannot_be_retrained_is_one_line(
    place: Path, capsys: Captured, old: str, new: str, options: list[str], message: str
) -> None:
    write_log(place / "few", 99)
    (place / "broken.py").write_text("import os; open(os.environ['MARK_OUT'] + '/vectors.json', 'w')")
    text = (place / "songs.toml").read_text()
    assert old in text
    (place / "songs.toml").write_text(text.replace(old, new))
    options = [str(place / "few") if one == "FEW" else one for one in options]
    assert main(["personal", "retrain", str(place / "songs.toml"), *options]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
