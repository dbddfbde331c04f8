"""What all tests share."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# A job in the background is started with SIGINT ignored, and hands that on to every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# CI looks at the same examples every time, so that a red run means a change; at a desk they are new ones every time.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
# Traced code is several times slower, so that no example has a deadline.
settings.register_profile("traced", derandomize=True, deadline=None)
