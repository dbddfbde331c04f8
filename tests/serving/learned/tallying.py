"""`mark serve` of one model with a learner that adds up labels, as a program.

It keeps so few facts in memory that its peers need snapshots.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from mark.cli import serve
from mark.cli.arguments import from_args
from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.launch.server import ServerOptions, listen, serving_of
from mark.serving.learned import learning
from tests.serving.learned.made import Tally

learning._TAIL_BYTES, learning._MOST_TAIL_BYTES, learning._SNAPSHOT_EVERY_BYTES = 1 << 20, 2 << 20, 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser()
    serve.add_to(parser)
    options = from_args(ServerOptions, parser.parse_args())
    try:
        listen(options, lambda: replace(serving_of(options, load_service(options.service)), learner=Tally))
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
