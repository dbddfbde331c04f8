"""Servers with personal heads as processes, and the observations that their clients tell them."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from mark.personal.learner import PersonalLearner, PersonalObservation
from mark.personal.settings import PersonalSettings
from tests.serving.learned.processes import Client, Place
from tests.serving.personal.made import ITEMS, TABLE_FILE, items, write_table
from tests.serving.personal.made import place as write_place

_STEP = 1e-7  # between the fractions of rewards, by which observations are told apart


def reward_of(number: int) -> float:
    """Return the reward of an observation: 0 to 4, plus a fraction that identifies it."""
    return number % 5 + number * _STEP


class PersonalPlace(Place):
    """A place for a server of `songs.toml`, whose vectors come from a table. Each release has another table."""

    program = ("mark.cli.main", "serve", "songs.toml")

    def write(self, folder: Path, more: str) -> None:
        write_place(folder, TABLE_FILE.replace('log = "feedback"', f'log = "feedback"\n{more}'))

    def release(self, number: int) -> None:
        super().release(number)
        write_table(self.folder, number)


class Observations:
    """Observations without an answer, of `keys` users."""

    path = "/v2/models/songs/feedback"

    def __init__(self, batch: int = 10, keys: int = 200, seed: int = 0) -> None:
        self._batch, self._keys, self._draw = batch, keys, random.Random(seed)
        self._numbers = count()
        self._made: list[tuple[str, str]] = []  # key and item, by number

    async def batch(self, client: Client) -> dict[int, dict[str, Any]]:
        return {number: self._piece(number) for _ in range(self._batch) for number in [next(self._numbers)]}

    def _piece(self, number: int) -> dict[str, Any]:
        key, item = f"u{self._draw.randrange(self._keys)}", f"s{self._draw.randrange(ITEMS)}"
        self._made.append((key, item))
        return {"id": f"c-{number}", "key": key, "item": item, "reward": reward_of(number)}

    async def numbers(self, client: Client) -> Counter[int]:
        return await numbers_at(client)

    async def off(self, place: Place, client: Client, numbers: Counter[int]) -> float:
        """Return how far the weights of a key differ from a fold of the observations, in the order of numbers."""
        fold = PersonalLearner(PersonalSettings(memory_mb=1000), table=items(place.released))
        for number in sorted(numbers):
            key, item = self._made[number]
            fold.observe(PersonalObservation(key, item, None, reward_of(number), 0.0), judged=False)
        found, fresh = 0.0, Client(client.address.url)  # the fold took longer than a server keeps idle connections
        for key in sorted({self._made[number][0] for number in numbers}):
            answer = await fresh.ask("GET", f"/v2/models/songs/keys/{key}")
            weights, shown = json.loads(answer.body)["weights"], fold.show(key)
            assert shown is not None
            found = max(found, float(np.abs(np.subtract(weights, shown["weights"])).max()))
        fresh.close()
        return found


async def numbers_at(client: Client) -> Counter[int]:
    """Return the numbers of observations in a server's state, by their rewards (`reward_of`)."""
    heads = (await client.state("songs")).partition(b"\n")[2]
    keys = json.loads(heads)["keys"] if heads else {}
    rows = (json.loads(base64.b64decode(text)) for text in keys.values())
    return Counter(round(reward % 1.0 / _STEP) for each in rows for reward in each["rewards"])
