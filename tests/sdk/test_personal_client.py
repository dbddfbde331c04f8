"""`mark.PersonalClient` and `mark.Service(personal=...)`, against real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

import mark
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput, MarkError
from mark.sdk.personal_client import RankedItem
from tests.serving.personal.made import FILE, TABLE_FILE, place
from tests.serving.test_server_process import served


def test_client_predicts_ranks_and_learns(tmp_path: Path) -> None:
    with (
        served(place(tmp_path, TABLE_FILE), service="songs.toml") as (_, url),
        mark.PersonalClient(url, key="u42") as songs,
    ):
        assert songs.observe(4.5, item="s7") is True
        assert songs.observe(1.0, item="s8", id="c-1") is True
        assert songs.observe(1.0, item="s8", id="c-1") is False, "it was told before"
        assert songs.observe(1.0, item="nothing") is False
        (best,) = songs.top(1)
        assert isinstance(best, RankedItem)
        assert songs.predict(best.item) == pytest.approx(best.score)
        assert [one.item for one in songs.top(2, items=["s1", "s2"], exclude=["s1"])] == ["s2"]
        assert songs.show()["observations"] == 2
        songs.forget()
        with pytest.raises(BadInput, match="nothing is known of this key"):
            songs.show()
        with pytest.raises(BadInput, match="no item of the table"):
            songs.predict("nothing")
        with pytest.raises(BadInput, match="say whom it is for"):
            songs.observe(1.0, item="s1", key="")


def test_client_ranks_inputs_of_the_features_stage(tmp_path: Path) -> None:
    with (
        served(place(tmp_path, FILE), service="songs.toml") as (_, url),
        mark.PersonalClient(url, model="songs") as songs,
    ):
        for x in (-2.0, -1.0, 0.0, 1.0, 2.0):
            assert songs.observe(10.0 * x, input=x, key="u1")
        ranked = songs.top(2, items={"low": -1.0, "high": 2.0, "middle": 0.5}, key="u1")
        assert [one.item for one in ranked] == ["high", "middle"]


def test_server_that_is_not_there_is_an_error_in_one_line() -> None:
    with mark.PersonalClient("http://127.0.0.1:9", key="u") as songs, pytest.raises(MarkError, match="cannot be asked"):
        songs.predict(1)


def test_service_says_personal_heads(tmp_path: Path) -> None:
    service = mark.Service(
        name="songs",
        slo_ms=50,
        slo_attainment=0.99,
        catalog="aws-2026",
        stages={"tower": "tests.sdk.drivers:shout"},
        personal={"features": "tower", "ridge": 2.0},
        feedback={"log": tmp_path / "told"},
    )
    service.write(str(tmp_path / "written.toml"))
    found = load_pipeline(str(tmp_path / "written.toml"))
    assert found.personal is not None
    assert (found.personal.features, found.personal.ridge) == ("tower", 2.0)
    assert found.feedback is not None
    assert found.feedback.log == str(tmp_path / "told")
