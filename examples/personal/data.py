"""Write a table of songs and a log of ratings: python data.py. Yours come from your own service.

Each user likes some words and dislikes others; a rating is 1 to 5 and has some noise.
"""

import csv

import numpy as np

WORDS = ["jazz", "rock", "folk", "techno", "choir", "piano", "guitar", "drums", "slow", "fast", "live", "sad", "happy"]
SONGS, USERS, RATINGS = 400, 40, 3000


def main() -> None:
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, size=4, replace=False)) for _ in range(SONGS)]
    with open("items.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["item", "text"])
        rows.writerows([f"song-{number}", text] for number, text in enumerate(texts))
    tastes = draw.normal(scale=0.9, size=(USERS, len(WORDS)))
    with open("clicks.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["user", "item", "rating"])
        for _ in range(RATINGS):
            user, song = draw.integers(USERS), draw.integers(SONGS)
            liked = sum(tastes[user][WORDS.index(word)] for word in texts[song].split())
            rows.writerow(
                [f"user-{user}", f"song-{song}", round(float(np.clip(3 + liked + draw.normal(0, 0.3), 1, 5)), 1)]
            )


if __name__ == "__main__":
    main()
