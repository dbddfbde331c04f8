"""Copy plotly's JavaScript from the installed package into mark, whose reports need no more of plotly.

    python packaging/plotly_bundle.py

A test fails when the copy is not that of the pinned plotly. It is MIT-licensed, as its first lines say.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from plotly.offline import get_plotlyjs

BUNDLE = Path(__file__).parents[1] / "mark" / "studies" / "report" / "plotly.min.js.gz"

if __name__ == "__main__":
    BUNDLE.write_bytes(gzip.compress(get_plotlyjs().encode(), mtime=0))
    print(f"{BUNDLE}: {BUNDLE.stat().st_size:,} bytes")
