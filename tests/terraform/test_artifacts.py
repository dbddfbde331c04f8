"""Artifacts stay in the bucket when newer ones replace them, and keys are written once: applied on moto."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site
from mark_infra.deploy.keys import SiteKeys, parameters, parsed, revoked
from mark_infra.testbed.environment import of_aws

from mark.domain.errors import BadInput
from tests.infra.conftest import REGION, moto_app, serving
from tests.terraform.conftest import Terraform, running_provider

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
def test_old_artifacts_and_changed_keys_outlive_an_apply(
    terraform: Terraform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance may boot while an artifact is replaced, or boot later by an old template.

    Terraform writes the keys as the command `mark keys` does, and keeps the keys that the command has changed.
    """
    folder = terraform.home / "artifacts"
    folder.mkdir()
    (folder / "main.tf").write_text(ROOT % (REGION, REGION))
    terraform.init(folder)
    file = folder / "echo.tar.gz"
    with serving(moto_app()) as moto, ExitStack() as there:
        environment = {
            "AWS_ENDPOINT_URL": moto.url,
            "TF_VAR_keys": KEYS,
            "TF_VAR_artifacts": json.dumps({"archive/echo": str(file)}),
        }
        for name, value in (of_aws({}, REGION) | environment).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("TF_REATTACH_PROVIDERS", there.enter_context(running_provider(terraform)))

        def run(*arguments: str) -> str:
            done = terraform.run(folder, *arguments)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        def applied(text: str) -> dict[str, str]:
            file.write_text(text)
            run("apply", "-auto-approve", "-input=false", "-no-color")
            return dict(json.loads(run("output", "-json", "artifacts"))["archive/echo"])

        def content(said: dict[str, str]) -> bytes:
            where = {"Bucket": said["bucket"], "Key": said["key"], "VersionId": said["version"]}
            return bytes(moto.client("s3").get_object(**where)["Body"].read())

        first = applied("first")
        assert first["file"] == "echo.tar.gz"
        ssm = moto.client("ssm")
        stored = {name: ssm.get_parameter(Name=name, WithDecryption=True) for name in parameters("mark")}
        made = parsed(KEYS, "keys")
        assert {name: answer["Parameter"]["Value"] for name, answer in stored.items()} == {
            name: text(made) for name, text in parameters("mark").items()
        }

        keys = SiteKeys(Gate(Site("mark", REGION, "dynamodb:none"), options=moto.options), "mark", tmp_path / "keys")
        changed = keys.change(lambda all: revoked(all, "root"), 0.0)
        second = applied("second")
        # the same names, so that rights need not change
        assert (first["key"], first["arn"]) == (second["key"], second["arn"])
        assert content(first) == b"first"
        assert content(second) == b"second"
        assert keys.read() == changed
        run("plan", "-detailed-exitcode", "-input=false", "-no-color")  # exits with 2 if anything would change
        assert not any(key.key in (folder / "terraform.tfstate").read_text() for key in made)

        run("destroy", "-auto-approve", "-input=false", "-no-color")
        assert not moto.client("s3").list_buckets()["Buckets"]
        with pytest.raises(BadInput, match="has no keys yet"):
            keys.read()
