"""`[cache]` of services and of pipelines, which say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.pipeline_file import load_pipeline
from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.domain.service import CacheSettings

SERVICE = '[service]\nname = "m"\nmodel = "m:M"\nslo_ms = 100\nslo_attainment = 0.9\n'
PIPELINE = '[service]\nname = "m"\nslo_ms = 100\nslo_attainment = 0.9\n[stage.a]\nmodel = "m:M"\n'


def written(folder: Path, text: str) -> tuple[str, str]:
    """Write a service file and a pipeline file with this text."""
    (folder / "m.toml").write_text(SERVICE + text)
    (folder / "p.toml").write_text(PIPELINE + text)
    return str(folder / "m.toml"), str(folder / "p.toml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("[cache]\n", CacheSettings(64, None)),
        ("[cache]\nmemory_mb = 1\nttl_s = 0.5\n", CacheSettings(1, 0.5)),
    ],
)
def test_a_cache_is_there_where_the_section_is(tmp_path: Path, text: str, expected: CacheSettings | None) -> None:
    service, pipeline = written(tmp_path, text)
    assert load_service(service).cache == load_pipeline(pipeline).cache == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("memory_mb = 0", "[cache] memory_mb: must lie between 1 and 100000: 0"),
        ("memory_mb = 1.5", "[cache] memory_mb: must be a whole number: 1.5"),
        ("ttl_s = 0", "[cache] ttl_s: must be above zero: 0"),
        ("ttl_s = -1.5", "[cache] ttl_s: must be above zero: -1.5"),
        ("ttl_s = inf", "[cache] ttl_s: must be a finite number: inf"),
        ("ttl_s = true", "[cache] ttl_s: must be a number: True"),
        ("ttl = 3", "[cache] ttl: unknown key, did you mean ttl_s?: 3"),
    ],
)
def test_a_bad_cache_is_named_by_file_section_key_and_value(tmp_path: Path, line: str, said: str) -> None:
    service, pipeline = written(tmp_path, f"[cache]\n{line}\n")
    with pytest.raises(BadInput) as of_service:
        load_service(service)
    assert str(of_service.value) == f"{service} {said}"
    with pytest.raises(BadInput) as of_pipeline:
        load_pipeline(pipeline)
    assert str(of_pipeline.value) == f"{pipeline} {said}"
