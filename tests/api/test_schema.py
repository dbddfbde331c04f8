"""The control API against its own OpenAPI description: schemathesis looks for a failure or an undocumented answer.

`MARK_SCHEMA_EXAMPLES=1000 pytest tests/api/test_schema.py` looks longer, with other cases each time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.conftest import CHANGER, keys, served
from tests.api.fake_manager import FakeManager, digits, social

EXAMPLES = os.environ.get("MARK_SCHEMA_EXAMPLES")
# A name that fits the schema may belong to no service, and the cheapest instance costs more than nothing.
CONFIG = """
[parameters]
service = "inception"
pipeline = "social"
[checks]
positive_data_acceptance.enabled = false
"""


@pytest.mark.slow
def test_no_case_meets_a_failure_or_an_undocumented_answer(manager: FakeManager, tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    with served(manager, keys(), pipelines=(social(), digits())) as url:
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
        command += [f"{url}/openapi.json", "--no-color", "--warnings", "off"]
        command += ["--header", f"Authorization: Bearer {CHANGER}"]
        command += ["--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES or "4"]
        fixed, new = ["--generation-deterministic", "--no-shrink"], ["--generation-database", "none"]
        command += fixed if EXAMPLES is None else new
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]
    assert "Tested: 23" in found.stdout, found.stdout[-2000:]


def test_every_schema_field_has_a_unit_or_a_description(manager: FakeManager) -> None:
    """Numbers carry their unit in the name or have a description."""
    from mark.api.app import app

    schemas = app(manager, None).openapi()["components"]["schemas"]
    units = ("_s", "_ms", "_rps", "_usd", "_usd_per_hour", "usd_per_hour", "rps")
    plain = {"BillSchema": {"on_demand", "spot", "burstable", "functions", "sagemaker", "total"}}
    plain |= {"OfferCount": {"pending", "ready", "draining", "stopped"}, "Wanted": {"count"}}
    for name, schema in schemas.items():
        for field, what in schema.get("properties", {}).items():
            numeric = "number" in str(what) or "integer" in str(what)
            if numeric and field not in plain.get(name, ()) and not field.endswith(units) and "$ref" not in str(what):
                assert what.get("description"), (name, field)
