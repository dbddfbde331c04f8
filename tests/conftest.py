"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# CI looks at the same examples every time, so that a red run means a change; at a desk they are new ones every time.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
# Traced code is several times slower, so that no example has a deadline.
settings.register_profile("traced", derandomize=True, deadline=None)
