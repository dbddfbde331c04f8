"""A process returns freed memory: it keeps little, and not for long."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

import pytest

from mark.serving.freed_memory import LEAST_LOOKS, SLACK_BYTES, STATM, FreedMemory

REST, CROWD = 50 << 20, 120 << 20
CROWDED = """
import asyncio, json, resource
from mark.serving import freed_memory

def held_bytes():
    statm.seek(0)
    return int(statm.read().split()[1]) * resource.getpagesize()

async def main():
    freed_memory.keep()
    looking = asyncio.create_task(freed_memory.give_back(look_s=0.02))
    await asyncio.sleep(0.1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    held = [held_bytes()]
    bodies, small = [], []
    for _ in range(200):
        bodies.append(b"x" * 400_000)
        small.append(b"x" * 600)
    del bodies  # `small` lies on top of them
    held.append(held_bytes())
    while held_bytes() > held[0] + freed_memory.SLACK_BYTES:
        await asyncio.sleep(0.02)
    looking.cancel()
    print(json.dumps(held))

with freed_memory.STATM.open("rb", buffering=0) as statm:
    asyncio.run(main())
"""


def test_little_is_kept() -> None:
    freed = FreedMemory(REST)
    assert not any(freed.is_due(REST + SLACK_BYTES) for _ in range(100))


def test_what_stays_is_given_back() -> None:
    freed = FreedMemory(REST)
    assert [freed.is_due(CROWD) for _ in range(LEAST_LOOKS)] == [False] * (LEAST_LOOKS - 1) + [True]


def test_what_may_be_in_use_is_asked_for_less_often() -> None:
    """The interval grows until there was a rest."""
    freed = FreedMemory(REST)
    due = [look for look in range(1, 25) if freed.is_due(CROWD)]
    assert due == [2, 6, 12, 18, 24]
    freed.is_due(REST)
    assert [freed.is_due(CROWD) for _ in range(LEAST_LOOKS)][-1]


@pytest.mark.skipif(
    not (STATM.exists() and hasattr(ctypes.CDLL(None), "malloc_trim")), reason="this C library has no malloc_trim"
)
def test_a_process_gives_back_what_a_crowd_left() -> None:
    """The crowd is 200 bodies of 400 kB, each below a small block that stays; they took all descriptors."""
    done = subprocess.run([sys.executable, "-c", CROWDED], capture_output=True, text=True, timeout=60, check=True)
    rest, crowd = json.loads(done.stdout)
    assert crowd > rest + 2 * SLACK_BYTES
