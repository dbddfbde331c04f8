"""Writes queries.jsonl: 200 of the digits on which the models of digits.py were not trained."""

from __future__ import annotations

import json
from pathlib import Path

from sklearn.datasets import load_digits

images, _ = load_digits(return_X_y=True)
lines = [json.dumps({"pixels": [int(pixel) for pixel in image]}) for image in images[1::2][:200]]
Path("queries.jsonl").write_text("\n".join(lines) + "\n")
