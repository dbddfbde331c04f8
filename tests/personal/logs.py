"""A log of rewards in which keys have different tastes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mark.personal.rewards_replay import LoggedRewards


def low_rank_log(keys: int = 40, items: int = 60, rows: int = 1600, seed: int = 0) -> LoggedRewards:
    """Return rewards of 3 plus the key's taste for the item of rank 2, plus noise."""
    draw = np.random.default_rng(seed)
    tastes, songs = draw.normal(size=(keys, 2)), draw.normal(size=(items, 2))
    key, item = np.divmod(draw.permutation(keys * items)[:rows], items)
    rewards = 3.0 + (tastes[key] * songs[item]).sum(1) + 0.3 * draw.normal(size=rows)
    names = [f"u{at}" for at in range(keys)], [f"i{at}" for at in range(items)]
    return LoggedRewards(key, item, rewards, np.arange(float(rows)), *names)


def write_ratings(folder: Path, header: str = "user,item,rating", log: LoggedRewards | None = None) -> str:
    """Write the log as a CSV file and return its path."""
    log = log or low_rank_log()
    lines = [
        f"{log.key_names[key]},{log.item_names[item]},{reward:.4f}"
        for key, item, reward in zip(log.keys, log.items, log.rewards, strict=True)
    ]
    path = folder / "ratings.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return str(path)
