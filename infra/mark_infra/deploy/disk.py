"""How large an instance's disk must be for what lies on it."""

from __future__ import annotations

import math

from mark.domain.errors import BadInput
from mark_infra.deploy.wheelhouse import Wheelhouse

GIB = 1024**3
# Of the image's own disk, which ours cannot be smaller than: its size, and what is on it (of the GPU image: unknown).
_AL2023_GIB, AL2023_USED_GIB = 8, 1.7
_GPU_GIB, _GPU_USED_GIB = 75, 75.0
_ROOM_GIB = 2.0  # Python, the log agent, logs, what a model writes
_INSTALLED = 1.5  # times the files of wheels: bytecode, and blocks that are not full (measured: 1.4)


def disk_gib(
    service: str,
    packages: Wheelhouse,
    packed: int,
    unpacked: int,
    *,
    gpus: bool,
    limit: int | None,
    log_bytes: int = 0,
) -> int:
    """GiB for the image, the packages, the service's files of `packed` and `unpacked` bytes, and its feedback log.

    Raises BadInput where `limit` (GiB) is less.
    """
    least, image = (_GPU_GIB, _GPU_USED_GIB) if gpus else (_AL2023_GIB, AL2023_USED_GIB)
    # While they are unpacked the archives are there, too.
    installed = (2 * packages.packed_bytes + _INSTALLED * packages.unpacked_bytes) / GIB
    model = (packed + unpacked) / GIB
    room = _ROOM_GIB + log_bytes / GIB
    size = max(least, math.ceil(image + installed + model + room))
    if limit is not None and size > limit:
        parts = f"image {image:.1f}, packages {installed:.1f}, the service's files {model:.1f}, room {room:.1f}"
        raise BadInput(f"{service} needs a disk of {size} GiB ({parts})", "max_disk_gib", limit)
    return size
