"""What instances boot from outlives its replacement: applied twice on moto."""

from __future__ import annotations

import json

import pytest
from mark_infra.testbed.environment import of_aws

from tests.infra.conftest import REGION, moto_app, serving
from tests.terraform.conftest import Terraform

ROOT = """
provider "aws" {
  region                      = "%s"
  s3_use_path_style           = true
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true
  max_retries                 = 2
}

variable "artifacts" {
  type = map(string)
}

variable "keys" {
  type      = string
  ephemeral = true
}

module "state" {
  source    = "../modules/state"
  site      = "mark"
  aws       = { partition = "aws", region = "%s", account = "123456789012" }
  keys      = var.keys
  artifacts = var.artifacts
  emulated  = true
}

output "artifacts" {
  value = module.state.artifacts
}
"""


@pytest.mark.slow
def test_a_template_finds_what_it_names(terraform: Terraform, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instance that boots while something new is sent, and the one that boots by an old template later."""
    folder = terraform.home / "artifacts"
    folder.mkdir()
    (folder / "main.tf").write_text(ROOT % (REGION, REGION))
    terraform.init(folder)
    file = folder / "echo.tar.gz"
    with serving(moto_app()) as moto:
        for name, value in (of_aws({}, REGION) | {"AWS_ENDPOINT_URL": moto.url, "TF_VAR_keys": "controller:x"}).items():
            monkeypatch.setenv(name, value)

        def applied(**artifacts: str) -> dict[str, dict[str, str]]:
            monkeypatch.setenv(
                "TF_VAR_artifacts", json.dumps({name.replace("_", "/"): str(file) for name in artifacts})
            )
            file.write_text(next(iter(artifacts.values())))
            done = terraform.run(folder, "apply", "-auto-approve", "-input=false", "-no-color")
            assert done.returncode == 0, done.stderr
            found = terraform.run(folder, "output", "-json", "artifacts")
            return dict(json.loads(found.stdout))

        def content(said: dict[str, str]) -> bytes:
            where = {"Bucket": said["bucket"], "Key": said["key"], "VersionId": said["version"]}
            return bytes(moto.client("s3").get_object(**where)["Body"].read())

        first = applied(archive_echo="first")["archive/echo"]
        second = applied(archive_echo="second")["archive/echo"]
        assert (first["key"], first["arn"]) == (second["key"], second["arn"])  # so that rights need not change
        assert first["file"] == "echo.tar.gz"
        assert content(first) == b"first"
        assert content(second) == b"second"
        again = applied(archive_echo="second")["archive/echo"]
        assert again == second
        done = terraform.run(folder, "destroy", "-auto-approve", "-input=false", "-no-color")
        assert done.returncode == 0, done.stderr
        assert not moto.client("s3").list_buckets()["Buckets"]
