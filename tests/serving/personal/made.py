"""Folders with services that have personal heads, heads in this process, and a client of a server, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np

from mark.models.answer import Provenance
from mark.personal.rewards_replay import LoggedRewards
from mark.personal.settings import PersonalSettings
from mark.personal.table import ItemTable
from mark.serving.feedback.port import Feedback, Observation
from mark.serving.learned.facts import Fact, line_of
from mark.serving.personal.heads import PersonalHeads
from mark.serving.personal.notes import HeadFact, HeadNote, Scored, id_name, key_name
from tests.serving.feedback.made import answer

TOWER = """
import mark
import numpy as np

class Tower(mark.Model):
    def predict(self, batch):
        return [np.array([1.0, float(item), float(item) ** 2][: 3 if float(item) < 100 else 2]) for item in batch]

@mark.pipeline
async def asks_head(query, models):
    return await models.personal({"vector": await models.tower(query["x"]), "item": query["item"]})
"""
FILE = """
[service]
name = "songs"
slo_ms = 5000
slo_attainment = 0.99
[stage.tower]
model = "tower:Tower"
[feedback]
log = "feedback"
[personal]
features = "tower"
"""
TABLE_FILE = FILE.replace('[stage.tower]\nmodel = "tower:Tower"\n', "").replace(
    'features = "tower"', 'table = "songs.npz"'
)
ITEMS = 50


def place(folder: Path, text: str = FILE) -> Path:
    (folder / "tower.py").write_text(TOWER)
    (folder / "songs.toml").write_text(text)
    write_table(folder)
    return folder


def write_table(folder: Path, release: int = 0) -> None:
    table = items(release)
    np.savez(folder / "songs.npz", ids=np.array(table.ids), vectors=table.vectors)


def items(release: int = 0) -> ItemTable:
    """Return the items of a release; each release has different vectors."""
    vectors = np.random.default_rng(7 + release).normal(size=(ITEMS, 4)).astype(np.float32)
    return ItemTable([f"s{number}" for number in range(ITEMS)], vectors, "songs.npz")


def heads(*, table: bool = False, **settings: Any) -> PersonalHeads:
    return PersonalHeads(PersonalSettings(**settings), "v", now=lambda: 0.0, table=items() if table else None)


def observation(
    said: dict[str, Any],
    *,
    key: str = "u1",
    scored: Scored | None = None,
    own: str = "",
    at_s: float = 10.0,
    version: str = "v",
) -> Observation:
    """Return feedback on an answer that scored one item for a key."""
    one = Scored(None, np.array([1.0, 2.0, 4.0], dtype=np.float32)) if scored is None else scored
    note = HeadNote(key and key_name(key), version, [one], id_name(own) if own else 0)
    return Observation(answer("a", provenance=Provenance(note=note.to_json())), Feedback("a", said), at_s)


def write_journal(folder: Path, log: LoggedRewards, name: str = "1") -> None:
    """Write the journal of a server that had learned this log, whose times are seconds after 1e9."""
    own = folder / name
    own.mkdir(parents=True)
    lines = []
    for number, (key, item) in enumerate(zip(log.keys, log.items, strict=True), 1):
        at_s = 1e9 + float(log.times_s[number - 1])
        reward, named = float(log.rewards[number - 1]), log.item_names[item]
        content = HeadFact(key_name(log.key_names[key]), at_s, "v", reward, named).to_json()
        lines.append(line_of(Fact(f"w{name}", number, at_s, f"a{name}-{number}", content)))
    (own / "learned-00000001.jsonl").write_bytes(b"".join(lines))


class Songs:
    """Asks a server of one of the files above."""

    def __init__(self, url: str, **headers: str) -> None:
        self.http = httpx.Client(base_url=f"{url}/v2/models/songs", trust_env=False, timeout=30.0, headers=headers)
        self.url = url

    def __enter__(self) -> Songs:
        return self

    def __exit__(self, *error: object) -> None:
        self.http.close()

    def predict(self, item: Any, key: str | None = None, **headers: str) -> float:
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        more |= {} if key is None else {"mark-key": key}
        answer = self.http.post(f"{self.url}/invocations", json=item, headers=more)
        assert answer.status_code == 200, answer.text
        return float(answer.json())

    def feedback(self, *pieces: dict[str, Any]) -> list[str]:
        answer = self.http.post("/feedback", json=list(pieces))
        assert answer.status_code == 200, answer.text
        return [one["result"] for one in answer.json()["results"]]

    def top(self, key: str | None = None, **said: Any) -> httpx.Response:
        return self.http.post("/top", json=said, headers={} if key is None else {"mark-key": key})

    def shown(self, key: str) -> Any:
        answer = self.http.get(f"/keys/{key}")
        return answer.json() if answer.status_code == 200 else answer.status_code

    def said(self) -> Any:
        return self.http.get("/personal").json()
