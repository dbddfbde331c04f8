"""Raise `min_replicas` of a Ray Serve deployment to the floor of `mark advise --serve`, once a minute.

    python examples/advise/ray_min_replicas.py serve.yaml APPLICATION DEPLOYMENT --wanted http://127.0.0.1:9464/wanted

`serve.yaml` is the file that you deploy, with an `autoscaling_config`; it is not changed. Its own `min_replicas` holds
while the floor is lower, or stale, or mark does not answer. Ray's dashboard takes the configuration (--ray).
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
import urllib.request
from pathlib import Path
from typing import Any

import yaml

ROUND_S = 60.0


def raised(config: dict[str, Any], application: str, deployment: str, floor: int | None) -> dict[str, Any]:
    """The configuration with `min_replicas` at the floor, between its own minimum and `max_replicas`."""
    changed = copy.deepcopy(config)
    (app,) = [one for one in changed["applications"] if one["name"] == application]
    (found,) = [one for one in app["deployments"] if one["name"] == deployment]
    scaling = found["autoscaling_config"]
    least, most = scaling.get("min_replicas", 1), scaling["max_replicas"]
    scaling["min_replicas"] = least if floor is None else max(least, min(floor, most))
    return changed


def wanted(url: str) -> int | None:
    """The floor; None while there is no fresh one."""
    token = os.environ.get("MARK_TOKEN")
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            return int(json.load(answer)["value"])
    except (OSError, ValueError, KeyError):
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("application")
    parser.add_argument("deployment")
    parser.add_argument("--wanted", default="http://127.0.0.1:9464/wanted")
    parser.add_argument("--ray", default="http://127.0.0.1:8265")
    args = parser.parse_args()
    config = yaml.safe_load(args.config.read_text())
    sent = None
    while True:
        changed = raised(config, args.application, args.deployment, wanted(args.wanted))
        if changed != sent:
            body = json.dumps(changed).encode()
            headers = {"content-type": "application/json"}
            url = f"{args.ray}/api/serve/applications/"
            try:
                urllib.request.urlopen(urllib.request.Request(url, body, headers, method="PUT"), timeout=30.0).close()
                sent = changed
            except OSError as error:
                print(f"Ray does not take it: {error}", flush=True)
        time.sleep(ROUND_S)


if __name__ == "__main__":
    main()
