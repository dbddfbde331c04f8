"""The server against its own OpenAPI description: schemathesis looks for a failure or an undocumented answer.

`MARK_SCHEMA_EXAMPLES=1000 pytest tests/serving/frontend/test_schema.py` looks longer, with other cases each time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.serving.conftest import Addresses

EXAMPLES = os.environ.get("MARK_SCHEMA_EXAMPLES")
# A deadline of almost zero is missed, so 504 is allowed. A refused body need not violate the schema, which cannot say
# that shape and data fit each other; hence no positive_data_acceptance.
CONFIG = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "4xx", 504]
negative_data_rejection.expected-statuses = ["4xx", 504]
positive_data_acceptance.enabled = false
"""


@pytest.mark.slow
def test_no_case_meets_a_failure_or_an_undocumented_answer(addresses: Addresses, tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
    command += [f"http://{addresses.http}/openapi.json", "--no-color", "--warnings", "off"]
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES or "4"]
    command += ["--generation-deterministic", "--no-shrink"] if EXAMPLES is None else ["--generation-database", "none"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]
    assert "Tested: 17" in found.stdout


def test_the_description_is_served_with_an_example_that_works(addresses: Addresses) -> None:
    with httpx.Client(base_url=f"http://{addresses.http}", trust_env=False) as client:
        said = client.get("/openapi.json").json()
        infer = said["paths"]["/v2/models/plain/infer"]["post"]
        example = infer["requestBody"]["content"]["application/json"]["example"]
        got = client.post("/v2/models/plain/infer", json=example)
        assert got.status_code == 200
        assert got.json()["outputs"][0]["data"] == [0.0, 0.0]


@pytest.mark.parametrize("path", ["/v2", "/ping", "/v2/models/plain/versions/many/infer", "/docs"])
def test_a_wrong_method_is_refused_with_the_allowed_one(addresses: Addresses, path: str) -> None:
    got = httpx.delete(f"http://{addresses.http}{path}", trust_env=False)
    assert got.status_code == 405
    assert got.headers["allow"] == ("POST" if path.endswith("infer") else "GET")
