"""Processes that a worker started outside its group."""

from __future__ import annotations

import subprocess
import sys

WITHOUT_DESCRIPTORS = """
import resource
from mark.serving.worker.descendants import end_marked
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
end_marked("of no worker")
print("done")
"""


def test_without_descriptors_nothing_is_found_and_nothing_fails() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_DESCRIPTORS], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")
