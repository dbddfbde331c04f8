"""Durations and deadlines of the data plane use a monotonic clock; the users of the wall clock are listed here."""

from __future__ import annotations

import ast
from pathlib import Path

import mark.serving

# A step of the wall clock changes these, and nothing else.
WHY = {
    "backend/replica.py": "faults that are played begin and end at Unix times, which all servers of an instance share",
    "conductor/coded_service.py": "the page says in Unix time since when the service is not insured",
    "personal/assembly.py": "a key without an observation for some days is forgotten, also after a restart",
    "personal/keyed_feedback.py": "a reward on no answer has the time at which it came, in all servers",
    "frontend/auth.py": "keys and tokens end at a Unix time",
    "feedback/collector.py": "the logs of several bouncers, and of one before and after a restart, are joined by time",
    "learned/learning.py": "a writer that has been gone for 30 days is forgotten, also after a restart",
    "observe/tracing.py": "a span says in Unix time when it began and ended; how long it took is by the other clock",
    "server_process.py": "a notice says in Unix time when the instance goes",
    "worker/loaders.py": "a testbed says in Unix time when its machine is ready",
}


def test_the_wall_clock_is_read_where_it_must_be() -> None:
    root = Path(mark.serving.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.time", "time.time_ns", "datetime.now")
    }
    assert found == set(WHY)
