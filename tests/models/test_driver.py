"""`@mark.pipeline`, bare and with a promise, and finding the pipeline that it made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import mark
from mark.domain.errors import BadInput
from mark.models.driver import PipelineDriver, load_driver


async def respond(query: Any, models: mark.StageModels) -> Any:
    """Answers."""
    return await models.first(query)


class _Models:
    async def first(self, item: Any) -> Any:
        return item + 1


def test_bare_and_with_a_promise() -> None:
    models: Any = _Models()
    for driver, slo_s in ((mark.pipeline(respond), None), (mark.pipeline(slo_ms=300)(respond), 0.3)):
        assert isinstance(driver, PipelineDriver)
        assert (driver.name, driver.slo_s, driver.__doc__) == ("respond", slo_s, "Answers.")
        assert asyncio.run(driver(1, models)) == 2


@pytest.mark.parametrize("slo_ms", [0, -1, float("nan"), float("inf")])
def test_a_promise_that_is_none_is_refused(slo_ms: float) -> None:
    with pytest.raises(BadInput, match="on respond slo_ms: must be above zero"):
        mark.pipeline(slo_ms=slo_ms)(respond)


def test_a_driver_is_an_async_function_of_query_and_models() -> None:
    def plain(query: Any, models: Any) -> Any:
        return query

    async def short(query: Any) -> Any:
        return query

    too_short: Any = short

    with pytest.raises(BadInput, match="on plain: must be an async function"):
        mark.pipeline(plain)
    with pytest.raises(BadInput, match="on short: must take a query and the models"):
        mark.pipeline(too_short)


def test_a_driver_is_found_by_its_reference(tmp_path: Path) -> None:
    (tmp_path / "drivers_of_test.py").write_text(
        "import mark\n@mark.pipeline\nasync def respond(query, models):\n    return query\n\nother = 3\n"
    )
    found = load_driver("drivers_of_test:respond", tmp_path)
    assert (found.name, found.__module__) == ("respond", "drivers_of_test")
    for reference, said in (
        ("drivers_of_test:other", "other is no pipeline: decorate it with @mark.pipeline"),
        ("drivers_of_test:none", "drivers_of_test has no none"),
        ("no_such_drivers:respond", "no module no_such_drivers"),
    ):
        with pytest.raises(BadInput, match=said):
            load_driver(reference, tmp_path)
