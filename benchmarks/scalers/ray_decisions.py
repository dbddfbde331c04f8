"""Record 1,000 decisions of Ray Serve's own autoscaling policy, for the tests to compare ours with.

    python benchmarks/scalers/ray_decisions.py --out tests/planning/policies/ray_decisions.csv.gz

Needs `pip install "ray[serve]"` in the Python that runs it, and no Ray cluster: the policy is called as Serve's
controller calls it, on a virtual clock. Twenty services of different settings make fifty decisions each, on random
walks; replicas become ready late.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from pathlib import Path
from random import Random
from typing import Any

SERVICES, TICKS = 20, 50
COLUMNS = (
    "service", "now_s", "ongoing", "running", "target", "target_ongoing_requests", "upscale_delay_s",
    "downscale_delay_s", "upscaling_factor", "downscaling_factor", "min_replicas", "max_replicas", "decision",
)  # fmt: skip


class RayPolicy:
    """Ray's default policy of one deployment, with the bounds that its controller applies."""

    def __init__(self, **settings: float) -> None:
        from ray.serve._private.common import DeploymentID
        from ray.serve.autoscaling_policy import _apply_autoscaling_config, replica_queue_length_autoscaling_policy
        from ray.serve.config import AutoscalingConfig, AutoscalingContext

        self._config = AutoscalingConfig(**settings)
        self._policy = _apply_autoscaling_config(replica_queue_length_autoscaling_policy)
        self._context, self._id = AutoscalingContext, DeploymentID(name="d", app_name="a")
        self._state: dict[str, Any] = {}

    def decide(self, now_s: float, ongoing: float, running: int, target: int) -> int:
        import ray.serve.autoscaling_policy as module

        config = self._config
        module.time = _Clock(now_s)  # type: ignore[assignment]  # it reads the wall clock
        context = self._context(
            deployment_id=self._id,
            deployment_name="d",
            app_name="a",
            current_num_replicas=running,
            target_num_replicas=target,
            running_replicas=[],
            total_num_requests=ongoing,
            total_queued_requests=0.0,
            aggregated_metrics={},
            raw_metrics={},
            capacity_adjusted_min_replicas=config.min_replicas,
            capacity_adjusted_max_replicas=config.max_replicas,
            policy_state=dict(self._state),
            last_scale_up_time=None,
            last_scale_down_time=None,
            current_time=now_s,
            config=config,
        )
        count, self._state = self._policy(context)
        return max(config.min_replicas, min(config.max_replicas, int(count)))


class _Clock:
    def __init__(self, now_s: float) -> None:
        self.time = lambda: now_s


def recorded(seed: int = 0) -> list[dict[str, float]]:
    """Return inputs and Ray's decisions, tick by tick."""
    rng, rows = Random(seed), []
    for service in range(SERVICES):
        settings = {
            "target_ongoing_requests": rng.choice((1.0, 2.0, 3.7, 10.0)),
            "upscale_delay_s": rng.choice((0.0, 5.0, 30.0)),
            "downscale_delay_s": rng.choice((0.0, 10.0, 40.0, 600.0)),
            "upscaling_factor": rng.choice((0.3, 0.5, 1.0, 2.0)),
            "downscaling_factor": rng.choice((0.1, 0.6, 1.0)),
            "min_replicas": rng.choice((0, 1, 3)),
            "max_replicas": rng.choice((8, 40, 200)),
        }
        policy = RayPolicy(**settings)
        now_s, ongoing = 0.0, rng.uniform(0.0, 60.0)
        target = running = max(1, int(settings["min_replicas"]))
        for _ in range(TICKS):
            now_s += rng.choice((0.1, 1.0, 5.0, 20.0))
            ongoing = max(0.0, ongoing * rng.uniform(0.6, 1.6) + rng.choice((0.0, 0.0, 3.0, -30.0)))
            running = min(target, running + rng.choice((0, 1, 4)))
            decision = policy.decide(now_s, ongoing, running, target)
            rows.append(
                {"service": service, "now_s": now_s, "ongoing": ongoing, "running": running, "target": target}
                | settings
                | {"decision": decision}
            )
            target = decision
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out, rows = parser.parse_args().out, recorded()
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: repr(v) if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    out.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    changed = sum(row["decision"] != row["target"] for row in rows)
    print(f"{len(rows)} decisions, {changed} of which change the count; {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
