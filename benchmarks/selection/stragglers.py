"""Fig. 3.9: an ensemble with one hanging candidate answers at its deadline, from the answers of the others.

    python benchmarks/selection/stragglers.py [--candidates 2,5,16] [--queries 500]

A real `mark serve` runs on loopback, with policy exp4, `deadline_ms` 50 and `slo_ms` 500. The candidate `hangs` sleeps
for 400 ms in its worker. Answers are arrays, whose mean waits for all candidates until the deadline. One client asks,
one query after the other, so no queue adds to the latency. If the bouncer of `hangs` refuses a call, the answer comes
without waiting.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

DEADLINE_MS, SLO_MS, HANG_S = 50, 500, 0.4
MODELS = f"""
import time
import numpy as np
import mark

class Fast(mark.Model):
    def load(self): pass
    def predict(self, batch): return [np.array([0.25, 0.75]) for _ in batch]

class Hangs(mark.Model):
    def load(self): self.asked = 0
    def predict(self, batch):
        self.asked += 1
        if self.asked > 3:  # not while it warms up
            time.sleep({HANG_S})
        return [np.array([0.25, 0.75]) for _ in batch]
"""


def service(candidates: int) -> str:
    """Return the pipeline file, whose first candidate hangs."""
    stages = ['[stage.hangs]\nmodel = "candidates:Hangs"']
    stages += [f'[stage.fast{n}]\nmodel = "candidates:Fast"' for n in range(1, candidates)]
    head = f'[service]\nname = "crowd"\nslo_ms = {SLO_MS}\nslo_attainment = 0.99\n'
    selection = f'[feedback]\nlog = "feedback"\n[selection]\npolicy = "exp4"\ndeadline_ms = {DEADLINE_MS}\n'
    return "\n".join([head, *stages, selection])


def latencies(candidates: int, queries: int) -> tuple[list[float], int]:
    """Return the milliseconds of each query, and the number of queries without an answer of the hanging candidate."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "candidates.py").write_text(MODELS)
        Path(folder, "service.toml").write_text(service(candidates))
        command = [sys.executable, "-m", "mark.cli.main", "serve", "service.toml", "--port", "0"]
        server = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env=os.environ)
        assert server.stderr is not None
        try:
            port = next(int(line.rsplit(":", 1)[1]) for line in server.stderr if " is ready on " in line)
            return _asked(port, queries)
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=60)


def _asked(port: int, queries: int) -> tuple[list[float], int]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    body, took, missed = json.dumps({"instances": [[1.0]]}), [], 0
    for _ in range(queries):
        began = time.perf_counter()
        line.request("POST", "/invocations", body, {"content-type": "application/json"})
        answer = line.getresponse()
        said = json.load(answer)
        took.append(1e3 * (time.perf_counter() - began))
        if answer.status != 200 or not np.allclose(said["predictions"], [[0.25, 0.75]]):
            raise SystemExit(f"wrong answer: {answer.status} {said}")
        stages = answer.headers["mark-stages"]
        missed += "hangs=" not in stages or "/" in stages.split("hangs=")[1].split(";")[0]
    return took, missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", default="2,5,16")
    parser.add_argument("--queries", type=int, default=500)
    args = parser.parse_args()
    for candidates in map(int, args.candidates.split(",")):
        took, missed = latencies(candidates, args.queries)
        p50, p99, most = np.quantile(took, [0.5, 0.99, 1.0])
        print(
            f"{candidates:2} candidates, one hangs: p50 {p50:.1f} ms, p99 {p99:.1f} ms (deadline {DEADLINE_MS} ms "
            f"{p99 - DEADLINE_MS:+.1f}), most {most:.1f} ms; {missed} of {args.queries} without its answer",
            flush=True,
        )


if __name__ == "__main__":
    main()
