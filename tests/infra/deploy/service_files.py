"""Folders with a service or a pipeline in them, to be sent."""

from __future__ import annotations

from pathlib import Path

TYPES = ("c5.large", "c7g.large", "g5.xlarge", "g4dn.xlarge", "lambda:1024")
PROFILE = "model,instance,batch,latency_ms\n" + "".join(f"echo:Echo,{name},1,20\n" for name in TYPES)

CODE = """
import mark


class Echo(mark.Model):
    def predict(self, batch):
        return batch


class A(Echo): ...


class B(Echo): ...
"""
DRIVER = "import mark\n\n\n@mark.pipeline\nasync def run(query, models):\n    return await models.first(query)\n"

SERVICE = """
[service]
name = "echo"
model = "echo:Echo"
slo_ms = 600
slo_attainment = 0.98
profile = "{profile}"   # measured
[fleet]
instances = {instances}
max_instances = 20
max_usd_per_hour = 10.0
[overflow]
function = "lambda:1024"
max_usd_per_hour = 2.0
"""


def service(folder: Path, *instances: str, profile: str = "profile.csv", code: str = "echo.py") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "my.toml").write_text(SERVICE.format(instances=list(instances) or ["c5.large"], profile=profile))
    (folder / profile).parent.mkdir(exist_ok=True)
    (folder / profile).write_text(PROFILE)
    (folder / code).write_text(CODE)
    return str(folder / "my.toml")


PIPELINE = """
[service]
name = "two"
slo_ms = 600
slo_attainment = 0.98
pipeline = "driver:run"
profile = "../profile.csv"
[fleet]
instances = ["c5.large", "g5.xlarge"]
max_instances = 20
max_usd_per_hour = 10.0
[overflow]
max_usd_per_hour = 2.0
[stage.first]
model = "echo:Echo"
slo_ms = 200
function = "lambda:1024"
[stage.second]   # the larger one
model = "echo:Echo"
instances = [
  "g4dn.xlarge",  # cheap
  "c5.large",
]
slo_ms = 400
"""


def pipeline(folder: Path, text: str = PIPELINE) -> str:
    (folder / "two").mkdir(exist_ok=True)
    (folder / "profile.csv").write_text(PROFILE)
    (folder / "two" / "my.toml").write_text(text)
    (folder / "two" / "echo.py").write_text(CODE)
    (folder / "two" / "driver.py").write_text(DRIVER)
    return str(folder / "two" / "my.toml")
