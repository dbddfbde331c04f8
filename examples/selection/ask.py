"""Ask the service with digits, tell it the right answers, and print the error and the candidates of each hundred.

python ask.py [--address http://127.0.0.1:8080] [--queries 2000]
"""

import argparse
import collections
import json
import urllib.request

import numpy as np
from digits import halves


def post(address: str, path: str, body: object) -> tuple[dict, dict]:
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer), dict(answer.headers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="http://127.0.0.1:8080")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    _, _, images, labels = halves()
    drawn = np.random.default_rng(args.seed).integers(0, len(labels), args.queries)
    wrong, chosen = 0, collections.Counter()
    for number, at in enumerate(drawn.tolist(), 1):
        answer, headers = post(args.address, "/invocations", {"instances": [images[at].tolist()]})
        wrong += answer["predictions"][0]["label"] != labels[at]
        chosen[headers["mark-selected"]] += 1
        post(args.address, "/v2/models/digits/feedback", {"id": headers["x-request-id"], "label": int(labels[at])})
        if number % 100 == 0:
            print(f"{number:6}: {wrong} of 100 wrong, {dict(chosen)}", flush=True)
            wrong, chosen = 0, collections.Counter()


if __name__ == "__main__":
    main()
