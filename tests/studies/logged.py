"""A small log of answers and its pipeline file, for tests of the replay."""

from __future__ import annotations

from pathlib import Path

SERVICE = """
[service]
name = "digits"
slo_ms = 100
slo_attainment = 0.95
profile = "profile.csv"
[fleet]
catalog = "aws-2026"
instances = ["c7i.large"]
[feedback]
log = "feedback"
[stage.small]
model = "small"
[stage.large]
model = "large"
usd_per_call = 0.001
[selection]
policy = "cascade"
threshold = 0.5
score = "p"
"""
PROFILE = "model,instance,batch,latency_ms\nsmall,c7i.large,1,10\n"
# `small` is unsure of six of ten queries and answers these wrong; `large` answers one wrong.
ROWS = [(1, 1 if at % 10 < 4 else 0, 0.9 if at % 10 < 4 else 0.1, 0 if at % 10 == 9 else 1) for at in range(100)]


def write_log(folder: Path, name: str = "log.csv") -> str:
    lines = [f"{label},{small},{score},{large}" for label, small, score, large in ROWS]
    (folder / name).write_text("\n".join(["label,small.answer,small.score,large.answer", *lines, ""]))
    return str(folder / name)


def write_service(folder: Path, text: str = SERVICE) -> str:
    (folder / "service.toml").write_text(text)
    (folder / "profile.csv").write_text(PROFILE)
    return str(folder / "service.toml")
