"""Resources of processes over time: memory, descriptors, shared memory, and whether they stay flat."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from mark.serving.freed_memory import SLACK_BYTES

# The allowed rise of a number between the first looks and the last: a constant, and an amount for each minute between.
# Processes keep some freed memory on purpose.
MOST_RISE = {
    "rss_mib": (SLACK_BYTES / 2**20 + 4.0, 0.5),
    "descriptors": (8.0, 0.0),
    "memory_files": (0.0, 0.0),
    "shared_memory": (0.0, 0.0),
}
LOOKS = 3  # at a time
_SHARED = re.compile(r"/dev/shm/\S+")


@dataclass(frozen=True, slots=True)
class HeldResources:
    """The resources of a process and all its descendants at a time, in seconds from the start.

    `rss_mib` is of the process alone: its workers are replaced, and bounded by a separate option. `memory_files` are
    descriptors of files without a name (memfd), `shared_memory` are files under /dev/shm that are mapped or open.
    """

    at_s: float
    rss_mib: float
    descriptors: int
    memory_files: int
    shared_memory: int
    processes: int
    workers_mib: float = 0.0


def held_by(pid: int, at_s: float) -> HeldResources:
    """Return the resources of a process. Raises psutil.Error if it is gone."""
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    descriptors = files = 0
    workers_mib, shared = 0.0, set[str]()
    for one in family:
        with suppress(psutil.Error, OSError):  # a worker that has just ended
            links = _links(one.pid)
            descriptors += len(links)
            files += sum(link.startswith("/memfd:") for link in links)
            mapped = _SHARED.findall(Path(f"/proc/{one.pid}/maps").read_text())
            shared.update(mapped, (link for link in links if link.startswith("/dev/shm/")))
            if one is not process:
                workers_mib += one.memory_info().rss / 2**20
    rss_mib = process.memory_info().rss / 2**20
    return HeldResources(at_s, rss_mib, descriptors, files, len(shared), len(family), workers_mib)


def not_flat(name: str, looks: Sequence[HeldResources]) -> list[str]:
    """Return a line for each number whose median over the last `LOOKS` is too far above that over the first."""
    if len(looks) < 2 * LOOKS:
        return []
    first, last = looks[:LOOKS], looks[-LOOKS:]
    found = []
    for what, (most, per_minute) in MOST_RISE.items():
        before, after = (statistics.median(getattr(one, what) for one in part) for part in (first, last))
        minutes = (statistics.median(x.at_s for x in last) - statistics.median(x.at_s for x in first)) / 60.0
        if after - before > most + per_minute * minutes:
            found.append(
                f"{name}: {what} rose from {before:.1f} to {after:.1f} in {minutes:.1f} min,"
                f" {most:g} and {per_minute:g} a minute are allowed"
            )
    return found


def rises(looks: Mapping[str, Sequence[HeldResources]]) -> dict[str, dict[str, list[float]]]:
    """Return the median of each `LOOKS`, in order, by process and kind of resource."""
    return {
        name: {
            what: [
                round(statistics.median(getattr(one, what) for one in of[start : start + LOOKS]), 1)
                for start in range(0, len(of), LOOKS)
            ]
            for what in (*MOST_RISE, "workers_mib")
        }
        for name, of in looks.items()
    }


def left_behind(pids: Iterable[int], folder: Path) -> list[str]:
    """Return a line for each of these processes that still runs with `folder` as its or its parents' folder."""
    found = []
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder:
                found.append(f"process {pid} is left behind: {' '.join(process.cmdline())[:120]}")
    return found


def _links(pid: int) -> list[str]:
    found = []
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with suppress(OSError):
            found.append(os.readlink(entry.path))
    return found
