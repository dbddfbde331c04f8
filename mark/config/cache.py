"""`[cache]`: a section that services and pipelines share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mark.config.section import Section
from mark.domain.service import CacheSettings

CACHE_KEYS = frozenset(("memory_mb", "ttl_s"))


def cache_of(path: Path, tables: dict[str, dict[str, Any]]) -> CacheSettings | None:
    """Return the settings of the section, or None without one. Raises BadInput."""
    if "cache" not in tables:
        return None
    cache = Section(path, "cache", tables["cache"])
    ttl_s = cache.number("ttl_s", above_zero=True) if "ttl_s" in cache.table else None
    return CacheSettings(cache.whole("memory_mb", CacheSettings().memory_mb), ttl_s)
