"""`mark serve` of files with [personal] as clients see it: real processes, real sockets."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from mark.cli.main import main
from mark.config.pipeline_file import load_pipeline
from mark.serving.personal.notes import key_name
from tests.serving.personal.made import FILE, ITEMS, TABLE_FILE, TOWER, Songs, place
from tests.serving.test_server_process import served


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Songs]:
    """Yield a server whose vectors come from a stage. Tests do not share keys or ids."""
    with (
        served(place(tmp_path_factory.mktemp("tower")), service="songs.toml") as (process, url),
        Songs(url) as songs,
    ):
        yield songs
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Songs]:
    """Yield a server without a stage, whose vectors come from a table."""
    folder = place(tmp_path_factory.mktemp("table"), TABLE_FILE)
    with served(folder, service="songs.toml") as (process, url), Songs(url) as songs:
        yield songs
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


# --- a features stage


def test_feedback_on_an_answer_changes_the_answers_of_its_key_alone(tower: Songs) -> None:
    before = tower.predict(0.5, "a1", x_request_id="a-1")
    assert tower.feedback({"id": "a-2", "key": "a2", "input": 0.5, "reward": before}) == ["applied"]
    assert tower.feedback({"id": "a-1", "reward": before + 100.0}) == ["applied"]
    assert tower.predict(0.5, "a1") > before + 20.0
    assert tower.predict(0.5, "a2") < tower.predict(0.5, "a1") - 20.0
    assert tower.feedback({"id": "a-1", "reward": 1.0}) == ["duplicate"]


def test_feedback_without_an_answer_counts_once_by_its_id(tower: Songs) -> None:
    piece = {"id": "b-1", "key": "b1", "item": "s7", "input": 0.5, "reward": 4.5}
    assert tower.feedback(piece, piece) == ["applied", "duplicate"]
    assert tower.feedback(piece) == ["duplicate"]
    assert tower.shown("b1")["observations"] == 1


def test_feedback_without_a_vector_is_unlearned(tower: Songs) -> None:
    """Without a table the name of an item is not enough, and neither is an input that is no vector or no number."""
    without = {"id": "c-1", "key": "c1", "item": "s7", "reward": 4.5}
    refused = {"id": "c-2", "key": "c1", "input": {"not": "a number"}, "reward": 4.5}
    infinite = {"id": "c-3", "key": "c1", "input": 1e60, "reward": 4.5}
    assert tower.feedback(without, infinite, refused) == ["unlearned"] * 3
    assert tower.shown("c1") == 404


def test_observation_on_which_the_features_stage_fails_is_unlearned_alone_with_the_reason(tower: Songs) -> None:
    good = {"id": "i-1", "key": "i1", "input": 0.5, "reward": 4.5}
    bad = {"id": "i-2", "key": "i1", "input": {"not": "a number"}, "reward": 4.5}
    answer = tower.http.post("/feedback", json=[bad, good])
    reason = "stage tower: the model failed: TypeError"
    assert (answer.status_code, answer.json()["results"]) == (
        200,
        [{"id": "i-2", "result": "unlearned", "reason": reason}, {"id": "i-1", "result": "applied"}],
    )
    assert tower.shown("i1")["observations"] == 1


@pytest.mark.parametrize(
    ("piece", "what"),
    [
        ({"id": "d", "key": "", "item": "s", "reward": 1}, "feedback 1: key must be a text of 1 to 128 bytes"),
        ({"id": "d", "key": 7, "item": "s", "reward": 1}, "feedback 1: key must be a text"),
        ({"id": "d", "key": "u", "item": "", "reward": 1}, "feedback 1: item must be a text of 1 to 256 characters"),
        ({"id": "d", "key": "u", "item": "s"}, "feedback 1: must have a label or a reward"),
        ({"id": "d", "kye": "u", "item": "s", "reward": 1}, "feedback 1: 'kye' is no field, did you mean key?"),
        ({"id": "d", "key": "u", "itm": "s", "reward": 1}, "feedback 1: 'itm' is no field, did you mean item?"),
        ({"id": "d", "key": "u", "inputs": 1, "reward": 1}, "feedback 1: 'inputs' is no field, did you mean input?"),
        ({"id": "d", "reward": 1, "forget": "x"}, "feedback 1: a key is deleted by DELETE .../keys/KEY"),
    ],
)
def test_feedback_that_cannot_be_meant_is_refused(tower: Songs, piece: dict[str, object], what: str) -> None:
    answer = tower.http.post("/feedback", json=piece)
    assert (answer.status_code, answer.json()) == (400, {"error": what})


@pytest.mark.parametrize("reward", ["NaN", "Infinity", "1e999"])
def test_reward_that_is_not_finite_is_refused(tower: Songs, reward: str) -> None:
    body = f'{{"id": "d", "key": "u", "input": 1, "reward": {reward}}}'
    assert tower.http.post("/feedback", content=body).status_code == 400


def test_vector_of_another_length_is_an_error_of_the_model(tower: Songs) -> None:
    tower.predict(1.0)
    answer = tower.http.post(f"{tower.url}/invocations", json=1000.0)
    assert answer.status_code == 500
    assert "3 numbers" in answer.json()["error"]


def test_request_without_a_key_is_answered_by_the_prior_and_counted(tower: Songs) -> None:
    before = tower.said()["answers"]["without_key"]
    tower.predict(0.5)
    assert tower.said()["answers"]["without_key"] == before + 1
    page = httpx.get(f"{tower.url}/metrics", trust_env=False).text
    assert 'mark_personal_answers_total{by="without_key",model="songs"}' in page


def test_head_is_a_stage_of_its_answers(tower: Songs) -> None:
    answer = tower.http.post(f"{tower.url}/invocations", json=0.5, headers={"mark-key": "e1"})
    assert [part.split("=")[0] for part in answer.headers["mark-stages"].split(";")] == ["tower", "personal"]
    several = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [3], "data": [1.0, 2.0, 3.0]}]}
    found = tower.http.post("/infer", json=several, headers={"mark-key": "e1"}).json()
    assert found["outputs"][0]["shape"] == [3]


def test_best_of_inputs_are_ranked_for_the_key_and_learned_from(tower: Songs) -> None:
    inputs = [{"item": name, "input": x} for name, x in (("low", -1.0), ("high", 1.0), ("higher", 2.0))]
    for number, x in enumerate((-2.0, -1.0, 0.0, 1.0, 2.0)):
        piece = {"id": f"f-{number}", "key": "f1", "input": x, "reward": 10.0 * x}
        assert tower.feedback(piece) == ["applied"]
    answer = tower.top("f1", k=2, items=inputs)
    found = answer.json()
    assert [one["item"] for one in found["items"]] == ["higher", "high"]
    assert found["prior"] is False
    assert answer.headers["x-request-id"] == found["id"]
    assert tower.feedback({"id": found["id"], "item": "high", "reward": 9.0}) == ["applied"]
    assert tower.shown("f1")["observations"] == 6


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"k": 3}, "items are needed, because [personal] has no table"),
        ({"k": 0, "items": []}, "k must be a whole number from 1 to 1000"),
        ({"k": True}, "k must be a whole number from 1 to 1000"),
        ({"items": []}, "items must be a list of 1 to 1000"),
        ({"items": ["s1"]}, 'each of items must be {"item": NAME, "input": INPUT}, because [personal] has no table'),
        ({"items": [{"item": "a", "input": 1}] * 2}, "items names an item twice"),
        ({"n": 3}, "the body must be an object with k, items and exclude, and not n"),
    ],
)
def test_question_for_the_best_that_cannot_be_meant_is_refused(
    tower: Songs, said: dict[str, object], what: str
) -> None:
    answer = tower.http.post("/top", json=said)
    assert (answer.status_code, answer.json()["error"]) == (400, what.replace('"', "'"))


def test_best_of_inputs_that_the_stage_refuses_is_an_error_that_names_the_item(tower: Songs) -> None:
    answer = tower.top("g1", items=[{"item": "good", "input": 1.0}, {"item": "bad", "input": "x"}])
    assert answer.status_code == 500
    assert "'bad'" in answer.json()["error"]


def test_page_tells_errors_rates_and_memory(tower: Songs) -> None:
    tower.predict(0.5, "h1", x_request_id="h-1")
    tower.feedback({"id": "h-1", "reward": 2.0})
    said = tower.said()
    assert said["version"].startswith("tower@")
    assert (said["lag_facts"], said["reach"]) == (0, None)
    assert said["observations"] >= 1
    assert {one["keys"] for one in said["errors"]} >= {"all", "new"}
    page = tower.http.get("/personal", headers={"accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")
    assert "observations learned" in page.text


def test_routes_are_described(tower: Songs) -> None:
    paths = httpx.get(f"{tower.url}/openapi.json", trust_env=False).json()["paths"]
    assert {"/v2/models/songs/top", "/v2/models/songs/keys/{id}", "/v2/models/songs/personal"} <= paths.keys()
    assert set(paths["/v2/models/songs/keys/{id}"]) == {"get", "delete"}
    headers = [one["name"] for one in paths["/v2/models/songs/top"]["post"]["parameters"]]
    assert headers == ["mark-key", "x-request-id", "mark-deadline-ms"]


# --- a table


def test_item_of_the_table_is_scored_and_an_unknown_one_refused(table: Songs) -> None:
    assert isinstance(table.predict("s1", "a1"), float)
    answer = table.http.post(f"{table.url}/invocations", json="nothing")
    assert answer.status_code == 400
    assert "no item of the table: 'nothing'" in answer.json()["error"]
    assert table.http.post(f"{table.url}/invocations", json=3).status_code == 400, "no stage made this item"


def test_best_of_the_table_are_all_others_than_the_excluded(table: Songs) -> None:
    found = table.top("b1", k=ITEMS, exclude=["s1", "s2"]).json()["items"]
    assert len(found) == ITEMS - 2
    assert not {"s1", "s2"} & {one["item"] for one in found}
    named = table.top("b1", k=2, items=["s1", "s2", "s3"]).json()["items"]
    assert len(named) == 2
    assert table.top("b1", items=["nothing"]).status_code == 400
    assert table.said()["reach"] > 0.9


def test_reward_of_an_item_brings_it_to_the_top(table: Songs) -> None:
    pieces = [
        {"id": f"c-{number}", "key": "c1", "item": f"s{number}", "reward": 5.0 if number == 3 else 0.0}
        for number in range(20)
    ]
    assert set(table.feedback(*pieces)) == {"applied"}
    assert "s3" in [one["item"] for one in table.top("c1", k=3).json()["items"]]
    assert table.feedback({"id": "c-x", "key": "c1", "item": "nothing", "reward": 1.0}) == ["unlearned"]


@pytest.mark.parametrize("server", ["table", "tower"])
def test_question_for_the_best_is_late_after_the_deadline_of_its_client(
    server: str, request: pytest.FixtureRequest
) -> None:
    songs = request.getfixturevalue(server)
    said = {"items": [{"item": "a", "input": 1.0}]} if server == "tower" else {"k": 1}
    for deadline_ms, status in (("0", 504), ("soon", 400), ("60000", 200)):
        answer = songs.http.post("/top", json=said, headers={"mark-deadline-ms": deadline_ms})
        assert answer.status_code == status, answer.text
    late = songs.http.post("/top", json=said, headers={"mark-deadline-ms": "0"})
    assert late.json() == {"error": "the deadline passed before it was answered"}


def test_feedback_on_the_best_names_one_of_them(table: Songs) -> None:
    found = table.top("d1", k=3).json()
    refused = table.http.post("/feedback", json={"id": found["id"], "reward": 1.0})
    what = "feedback 1: must name its item, because the answer has 3 items"
    assert (refused.status_code, refused.json()) == (400, {"error": what})
    assert table.feedback({"id": found["id"], "item": found["items"][1]["item"], "reward": 1.0}) == ["applied"]
    assert table.shown("d1")["observations"] == 1


# Keys


def test_deleted_key_is_in_no_answer_and_no_file(tmp_path: Path) -> None:
    folder = place(tmp_path)
    with served(folder, service="songs.toml") as (_, url), Songs(url) as songs:
        for key, named in (("gone", "g"), ("kept", "k")):
            songs.predict(0.5, key, x_request_id=f"{named}-1")
            songs.feedback({"id": f"{named}-1", "reward": 3.0})
            songs.feedback({"id": f"{named}-2", "key": key, "input": 0.7, "reward": 4.0})
            songs.predict(0.5, key, x_request_id=f"{named}-3")
        assert songs.shown("gone")["observations"] == 2
        answer = songs.http.delete("/keys/gone")
        assert (answer.status_code, answer.json()) == (200, {"key": "gone", "result": "deleted"})
        assert songs.shown("gone") == 404
        assert songs.shown("kept")["observations"] == 2
        assert songs.feedback({"id": "g-3", "reward": 3.0}) == ["unknown"], "its answer is forgotten, too"
        songs.feedback({"id": "k-3", "reward": 3.0})
        left = [path.read_bytes() for path in (folder / "feedback").rglob("*") if path.is_file()]
        assert not any(b"gone" in data for data in left)
        assert any(b"k-3" in data for data in left)
        assert sum(data.count(key_name("gone").encode()) for data in left) == 2, (
            "the deletion in the log and in the snapshot"
        )
    with served(folder, service="songs.toml") as (_, url), Songs(url) as songs:
        assert songs.shown("gone") == 404
        assert songs.shown("kept")["observations"] == 3


def test_keys_are_for_admins(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("app:infer-key-of-the-app:infer\nboss:admin-key-of-the-boss:admin\n")
    keys.chmod(0o600)
    with served(place(tmp_path), "--keys", str(keys), service="songs.toml") as (_, url):
        with Songs(url, **{"x-api-key": "infer-key-of-the-app"}) as app:
            app.predict(0.5, "a", x_request_id="a-1")
            app.feedback({"id": "a-1", "reward": 3.0})
            assert (app.shown("a"), app.http.delete("/keys/a").status_code) == (403, 403)
            assert app.top("a", items=[{"item": "x", "input": 1.0}]).status_code == 200
        with Songs(url, **{"x-api-key": "admin-key-of-the-boss"}) as boss:
            assert boss.shown("a")["observations"] == 1
            assert boss.http.delete("/keys/a").status_code == 200


def test_key_may_have_any_letters(table: Songs) -> None:
    key = "Zoë/50%"
    table.feedback({"id": "e-1", "key": key, "item": "s1", "reward": 1.0})
    answer = table.http.get("/keys/Zo%C3%AB%2F50%25")
    assert answer.json()["key"] == key
    asked = table.http.post("/top", json={"k": 1}, headers={b"mark-key": key.encode()})
    assert asked.json()["prior"] is False


# Drivers


def test_driver_calls_the_head(tmp_path: Path) -> None:
    text = FILE.replace("slo_ms", 'pipeline = "tower:asks_head"\nslo_ms')
    with served(place(tmp_path, text), service="songs.toml") as (_, url), Songs(url) as songs:
        before = songs.predict({"x": 0.5, "item": "s1"}, "a", x_request_id="a-1")
        assert songs.feedback({"id": "a-1", "reward": before + 50.0}) == ["applied"]
        assert songs.predict({"x": 0.5, "item": "s1"}, "a") > before + 10.0
        assert songs.feedback({"id": "a-2", "key": "a", "input": 0.5, "reward": 1.0}) == ["applied"]


# Conductors


def test_conductor_has_the_head_and_the_stage_is_elsewhere(tmp_path: Path) -> None:
    folder = place(tmp_path)
    with (
        served(folder, "--stage", "tower", service="songs.toml") as (_, stage),
        served(folder, "--stage-at", f"tower={stage}", service="songs.toml") as (_, url),
        Songs(url) as songs,
    ):
        before = songs.predict(0.5, "a", x_request_id="a-1")
        assert songs.feedback({"id": "a-1", "reward": before + 50.0}) == ["applied"]
        assert songs.feedback({"id": "a-2", "key": "b", "input": 0.5, "reward": before}) == ["applied"]
        assert songs.predict(0.5, "a") > songs.predict(0.5, "b") + 10.0
        assert httpx.get(f"{stage}/v2/models/songs/personal", trust_env=False).status_code == 404


def test_file_with_heads_is_bought_as_one_fleet_of_its_stages(tmp_path: Path) -> None:
    config = load_pipeline(str(place(tmp_path) / "songs.toml"))
    assert config.whole
    (bought,) = config.bought_services()
    assert (bought.name, bought.whole, config.groups) == ("songs", ("tower",), (("tower",),))
    assert config.stage_attainment == config.slo.attainment


# The cache of a new release

CACHED = FILE + "[cache]\nmemory_mb = 8\n"


def by_cache(songs: Songs, item: float) -> bool:
    answer = songs.http.post(f"{songs.url}/invocations", json=item, headers={"mark-key": "a"})
    assert answer.status_code == 200, answer.text
    return "tower" in answer.headers["mark-stages"] and "/cache" in answer.headers["mark-stages"]


def test_new_features_model_is_asked_for_the_items_used_most_before_it_is_ready(tmp_path: Path) -> None:
    """The new model gives other vectors, and fails for one of the items."""
    folder = place(tmp_path, CACHED)
    with served(folder, service="songs.toml") as (process, url), Songs(url) as songs:
        assert [by_cache(songs, item) for item in (0.5, 0.5, 2.5, 2.5, 3.5)] == [False, True, False, True, False]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    renewed = TOWER.replace("1.0, float", "1.0 / (float(item) != 2.5), 7.0, float").replace("Tower", "Renewed")
    slowly = "        __import__('time').sleep(0.3)\n        return [np"
    (folder / "renewed.py").write_text(renewed.replace("        return [np", slowly))
    (folder / "songs.toml").write_text(CACHED.replace("tower:Tower", "renewed:Renewed"))
    with served(folder, service="songs.toml") as (_, url), Songs(url) as songs:
        page = httpx.get(f"{url}/metrics", trust_env=False).text
        (kept,) = [line for line in page.splitlines() if line.startswith("mark_cache_bytes{")]
        assert float(kept.split()[-1]) > 0.0, "it is ready only then"
        assert [by_cache(songs, item) for item in (0.5, 3.5)] == [True, False]
        note = songs.http.post(f"{songs.url}/invocations", json=2.5, headers={"mark-key": "a"})
        assert note.status_code == 500, "errors are not kept"


def test_server_is_ready_after_the_allowed_time_if_items_take_longer(tmp_path: Path) -> None:
    folder = place(tmp_path, CACHED.replace("[cache]", "warm_s = 2\n[cache]"))
    with served(folder, service="songs.toml") as (process, url), Songs(url) as songs:
        assert [by_cache(songs, item) for item in (0.5, 0.5)] == [False, True]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    (folder / "tower.py").write_text(TOWER.replace("        return [np", "        HANGS\n        return [np"))
    hanging = "__import__('time').sleep(60.0 * (0.5 in map(float, batch)))"
    (folder / "tower.py").write_text((folder / "tower.py").read_text().replace("HANGS", hanging))
    with served(folder, service="songs.toml") as (process, url):
        assert httpx.get(f"{url}/v2/health/ready", trust_env=False).status_code == 200
        process.kill()
        assert process.stderr is not None
        found = [re.search(r"the cache has 0 of 1 items used most, after ([0-9.]+) s", line) for line in process.stderr]
    (took_s,) = [float(one[1]) for one in found if one is not None]
    assert 1.9 < took_s < 10.0


def test_deletion_of_a_key_forgets_the_items_used_most(tmp_path: Path) -> None:
    folder = place(tmp_path, CACHED)
    with served(folder, service="songs.toml") as (process, url), Songs(url) as songs:
        assert [by_cache(songs, item) for item in (0.5, 0.5)] == [False, True]
        aside = songs.http.get("/learned/aside")
        assert (aside.status_code, b"0.5" in aside.content) == (200, True)
        songs.http.delete("/keys/a").raise_for_status()
        assert songs.http.get("/learned/aside").status_code == 404
        assert by_cache(songs, 0.5)
        assert songs.http.get("/learned/aside").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


# Bad input


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('features = "tower"', 'features = "towe"', "is no stage"),
        ('features = "tower"', 'table = "none.npz"', "cannot be read"),
        ('features = "tower"', 'table = "bad.npz"', "ids names an item twice"),
    ],
)
def test_file_that_cannot_be_served_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, what: str
) -> None:
    place(tmp_path, FILE.replace(old, new))
    np.savez(tmp_path / "bad.npz", ids=np.array(["a", "a"]), vectors=np.ones((2, 2)))
    assert main(["serve", str(tmp_path / "songs.toml"), "--port", "0"]) == 2
    assert what in capsys.readouterr().err.splitlines()[-1]


def test_table_alone_has_no_instance_to_plan_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place(tmp_path, TABLE_FILE)
    assert main(["check", str(tmp_path / "songs.toml")]) == 2
    assert "without a stage nothing says how large an instance must be" in capsys.readouterr().err


def test_observation_is_logged_with_what_was_scored(tmp_path: Path) -> None:
    folder = place(tmp_path)
    with served(folder, service="songs.toml") as (process, url), Songs(url) as songs:
        songs.predict(0.5, "a", x_request_id="a-1")
        songs.feedback({"id": "a-1", "reward": 3.0})
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    (file,) = (folder / "feedback").rglob("observations-*.jsonl")
    (note,) = json.loads(file.read_text())["provenance"]["note"]
    assert note["key"] == key_name("a")
    ((item, vector, propensity),) = note["scored"]
    assert (item, propensity) == (None, 1.0)
    assert vector


def test_store_of_the_option_is_the_pipelines_and_not_its_stages(tmp_path: Path) -> None:
    folder = place(tmp_path)
    with served(folder, "--feedback-store", str(tmp_path / "store"), service="songs.toml") as (process, url):
        with Songs(url) as songs:
            assert songs.feedback({"id": "c-1", "key": "a", "input": 0.5, "reward": 3.0}) == ["applied"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert any((tmp_path / "store").rglob("learned/songs/*/*"))
