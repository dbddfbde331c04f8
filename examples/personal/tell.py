"""Tell the service the ratings of a log, and print the error of its predictions before it knew them.

python tell.py clicks.csv [--address http://127.0.0.1:8080] [--rows 3000]
"""

import argparse
import csv
import itertools

import mark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clicks")
    parser.add_argument("--address", default="http://127.0.0.1:8080")
    parser.add_argument("--rows", type=int, default=3000)
    args = parser.parse_args()
    squares, told = 0.0, 0
    with mark.PersonalClient(args.address) as songs, open(args.clicks, newline="") as file:
        for number, row in enumerate(itertools.islice(csv.DictReader(file), args.rows), 1):
            rating = float(row["rating"])
            squares += (songs.predict(row["item"], key=row["user"]) - rating) ** 2
            # The id says which row it is, so that a second run of this script changes nothing.
            told += songs.observe(rating, item=row["item"], key=row["user"], id=f"{args.clicks}-{number}")
            if number % 500 == 0:
                print(f"{number:6}: error {(squares / 500) ** 0.5:.3f}", flush=True)
                squares = 0.0
    print(f"{told} ratings learned")


if __name__ == "__main__":
    main()
