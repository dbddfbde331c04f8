"""`mark profile --on` over the testbed's cloud and real bouncers: it rents, measures, ends, and knows its bill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from mark_infra.aws.site import TO_MEASURE, dump_site
from mark_infra.testbed.emulated_cloud import LocalCloud
from mark_infra.testbed.machines import Processes, ServedProgram
from mark_infra.testbed.provision import Wish, provision

from mark.cli.main import main
from mark.domain.catalog.tables import load_catalog
from mark.profiling.table import load_profiles

MODEL = """
import mark

class Half(mark.Model):
    inputs = [mark.TensorSpec("x", "FP64")]
    outputs = [mark.TensorSpec("y", "FP64")]

    def predict(self, batch):
        return [x / 2 for x in batch]
"""
SERVICE = """
[service]
name = "half"
model = "half:Half"
slo_ms = 2000
slo_attainment = 0.9
profile = "truth.csv"
[fleet]
catalog = "catalog.csv"
markets = ["on-demand", "spot"]
instances = ["c7i.*", "g6.*"]
"""
# Times are linear in vCPUs: c7i.xlarge costs as much as c7i.large, and is not rented. g6.xlarge is three times as dear
# at best.
TRUTH = """model,instance,batch,latency_ms
half:Half,c7i.large,1,120
half:Half,c7i.large,4,360
half:Half,c7i.xlarge,1,60
half:Half,c7i.xlarge,4,180
half:Half,g6.xlarge,1,100
half:Half,g6.xlarge,4,150
"""
CATALOG = """instance,market,zone,usd_per_hour,vcpu,memory_gib,gpus,boot_mean_s,boot_p95_s,interruptions_per_hour,\
retired
c7i.large,on-demand,,0.1,2,4,0,60,60,,false
c7i.large,spot,us-east-1a,0.03,2,4,0,60,60,0.0001,false
c7i.xlarge,on-demand,,0.2,4,8,0,60,60,,false
c7i.4xlarge,on-demand,,0.8,16,32,0,60,60,,false
g6.xlarge,on-demand,,0.8,4,16,1,60,60,,false
"""


@pytest.mark.slow
def test_the_best_type_is_found_for_half_the_dollars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("half.py", MODEL), ("half.toml", SERVICE), ("truth.csv", TRUTH), ("catalog.csv", CATALOG)):
        (tmp_path / name).write_text(text)
    program = ServedProgram(tmp_path / "half.toml", ["--to-measure"])
    with Processes({f"half{TO_MEASURE}": program}, tmp_path / "logs") as machines:
        cloud = LocalCloud(load_catalog("catalog.csv"), machines)
        try:
            environment = {
                "AWS_ENDPOINT_URL": cloud.start(),
                "AWS_ACCESS_KEY_ID": "testing",
                "AWS_SECRET_ACCESS_KEY": "testing",
            }
            for name, text in environment.items():
                monkeypatch.setenv(name, text)

            def client(service: str) -> Any:
                return boto3.client(service, region_name="us-east-1", config=Config(retries={"total_max_attempts": 1}))

            site = provision(client, [Wish("half")], region="us-east-1", zones=["us-east-1a"], store="sqlite:state.db")
            (tmp_path / "site.toml").write_text(dump_site(site))
            types = "c7i.large,c7i.xlarge,c7i.4xlarge,g6.xlarge"
            asked = ("--on", types, "--site", "site.toml", "--budget-usd", "2", "--batch", "1,4", "--seconds", "4")
            assert main(["profile", "half.toml", *asked, "--out", "measured.csv", "--json", "-"]) == 0
            found = json.loads(capsys.readouterr().out)
            states = cloud.status()["instances"]
            true_usd = cloud.bill().total
        finally:
            cloud.stop()
    assert found["best"] == "c7i.large", found
    assert found["types"]["c7i.large"]["rentals"][0]["offer"] == "c7i.large/spot/us-east-1a"
    assert found["types"]["c7i.xlarge"]["why"].startswith("never rented: even at linear scaling")
    assert set(states) <= {"terminated", "shutting-down"}, states
    # Our bill counts from launch to end, so it is no less than the cloud's, which counts from running to end.
    assert true_usd <= found["usd"] <= 1.3 * true_usd
    profile = load_profiles("measured.csv")["half:Half"]
    assert set(profile) == {"c7i.large", "g6.xlarge"}
    for name, row in (("c7i.large", profile["c7i.large"].rows[1]), ("g6.xlarge", profile["g6.xlarge"].rows[1])):
        true_ms = {"c7i.large": 360.0, "g6.xlarge": 150.0}[name]
        # At most a fortieth less: the lateness of a batch's start does not count for the next batch (`due_s`).
        assert true_ms * 39.0 / 40.0 <= row.latency_ms <= true_ms + 200.0, (
            "a busy computer adds to each, and not the next one's time"
        )
    shortest_s = min(rental["seconds"] for one in found["types"].values() for rental in one["rentals"])
    assert found["usd"] <= 0.5 * (0.03 + 0.2 + 0.8 + 0.8) / 3600.0 * shortest_s
