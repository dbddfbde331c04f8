"""Give every item of a table its vector: python embed.py items.csv items.npz."""

import csv
import sys

import numpy as np
from embedder import Embedder


def main(items: str, table: str) -> None:
    with open(items, newline="") as file:
        rows = list(csv.DictReader(file))
    np.savez(
        table, ids=np.array([row["item"] for row in rows]), vectors=Embedder().predict([row["text"] for row in rows])
    )
    print(f"{len(rows)} items in {table}")


if __name__ == "__main__":
    main(*sys.argv[1:])
