"""The disk size that an instance needs for its files."""

from __future__ import annotations

import math

from mark.domain.errors import BadInput
from mark_infra.deploy.wheelhouse import Wheelhouse

GIB = 1024**3
# The image's disk, which is our minimum: its size, and its used space (unknown for the GPU image).
_AL2023_GIB, AL2023_USED_GIB = 8, 1.7
_GPU_GIB, _GPU_USED_GIB = 75, 75.0
_ROOM_GIB = 2.0  # for Python, the log agent, logs, and a model's own files
_INSTALLED = 1.5  # installed size per wheel size, with bytecode and partly filled blocks (measured: 1.4)


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
    """Return the GiB for the image, packages, the service's `packed` and `unpacked` files (bytes) and its feedback log.

    Raises BadInput if that exceeds `limit` (GiB).
    """
    least, image = (_GPU_GIB, _GPU_USED_GIB) if gpus else (_AL2023_GIB, AL2023_USED_GIB)
    # The archives are also there while they are unpacked.
    installed = (2 * packages.packed_bytes + _INSTALLED * packages.unpacked_bytes) / GIB
    model = (packed + unpacked) / GIB
    room = _ROOM_GIB + log_bytes / GIB
    size = max(least, math.ceil(image + installed + model + room))
    if limit is not None and size > limit:
        parts = f"image {image:.1f}, packages {installed:.1f}, the service's files {model:.1f}, room {room:.1f}"
        raise BadInput(f"{service} needs a disk of {size} GiB ({parts})", "max_disk_gib", limit)
    return size
