"""What instances boot from outlives its replacement, and keys are written once: applied on moto."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site
from mark_infra.deploy.keys import SiteKeys, parameters, parsed, revoked
from mark_infra.testbed.environment import of_aws

from mark.domain.errors import BadInput
from tests.infra.conftest import REGION, moto_app, serving
from tests.terraform.conftest import MODULES, Terraform

KEYS = "controller:0123456789abcdef:metrics\nroot:0123456789abcdeg:admin,infer\nold:0123456789abcdeh:infer:4102444800\n"
ROOT = """
provider "aws" {
  region                      = "%s"
  s3_use_path_style           = true
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true
  max_retries                 = 8
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
        for name, value in (of_aws({}, REGION) | {"AWS_ENDPOINT_URL": moto.url, "TF_VAR_keys": KEYS}).items():
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


@pytest.mark.slow
def test_keys_are_written_once_as_mark_keys_would(
    terraform: Terraform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Terraform makes of them is what the command makes of them, and what the command changes Terraform leaves."""
    folder = terraform.home / "keys"
    folder.mkdir()
    (folder / "main.tf").write_text(ROOT % (REGION, REGION))
    terraform.init(folder)
    with serving(moto_app()) as moto:
        for name, value in (of_aws({}, REGION) | {"AWS_ENDPOINT_URL": moto.url, "TF_VAR_keys": KEYS}).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(
            "TF_VAR_artifacts", json.dumps({"readme": str(MODULES / "modules" / "state" / "versions.tf")})
        )

        def there() -> dict[str, str]:
            ssm = moto.client("ssm")
            found = {name: ssm.get_parameter(Name=name, WithDecryption=True) for name in parameters("mark")}
            return {name: answer["Parameter"]["Value"] for name, answer in found.items()}

        done = terraform.run(folder, "apply", "-auto-approve", "-input=false", "-no-color")
        assert done.returncode == 0, done.stderr
        made = parsed(KEYS, "keys")
        assert there() == {name: text(made) for name, text in parameters("mark").items()}

        keys = SiteKeys(Gate(Site("mark", REGION, "dynamodb:none"), options=moto.options), "mark", tmp_path / "keys")
        changed = keys.change(lambda all: revoked(all, "root"), 0.0)
        done = terraform.run(folder, "plan", "-detailed-exitcode", "-input=false", "-no-color")
        assert done.returncode == 0, done.stdout + done.stderr
        assert keys.read() == changed
        assert not any(key.key in (folder / "terraform.tfstate").read_text() for key in made)
        done = terraform.run(folder, "destroy", "-auto-approve", "-input=false", "-no-color")
        assert done.returncode == 0, done.stderr
        with pytest.raises(BadInput, match="has no keys yet"):
            keys.read()
