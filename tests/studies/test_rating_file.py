"""Logs of rewards in CSV files: columns by name, and one line for each cell that cannot be used."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.studies.rating_file import TIME, RatingColumns, read_ratings


def _write(folder: Path, text: str) -> str:
    (folder / "r.csv").write_text(text)
    return str(folder / "r.csv")


def test_rows_are_read_in_order_with_their_times(tmp_path: Path) -> None:
    found = read_ratings(
        _write(tmp_path, "user,item,rating,t_seconds\nu1,a,4.5,10\nu2,b,-1,5\n\nu1,b,2,7\n"), RatingColumns()
    )

    assert (found.key_names, found.item_names) == (["u1", "u2"], ["a", "b"])
    assert (found.keys.tolist(), found.items.tolist()) == ([0, 1, 0], [0, 1, 1])
    assert (found.rewards.tolist(), found.times_s.tolist()) == ([4.5, -1.0, 2.0], [10.0, 5.0, 7.0])


def test_columns_have_the_names_that_are_given_and_others_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "r.csv.gz"
    path.write_bytes(gzip.compress(b'title,who,what,stars\n"A, B",7,8,3\n'))
    found = read_ratings(str(path), RatingColumns("who", "what", "stars"))

    assert (found.key_names, found.item_names, found.rewards.tolist()) == (["7"], ["8"], [3.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,item\nu,i\n", "r.csv:1: has no column 'rating': name the one it has by --reward: user,item"),
        ("who,item,rating\nu,i,1\n", "r.csv:1: has no column 'user': name the one it has by --key: who,item,rating"),
        ("user,item,rating\nu,i\n", "r.csv:2: 2 cells under a header of 3"),
        ("user,item,rating\n,i,1\n", "r.csv:2 user: must not be blank"),
        ("user,item,rating\nu, ,1\n", "r.csv:2 item: must not be blank"),
        ("user,item,rating\nu,i,\n", "r.csv:2 rating: must not be blank"),
        ("user,item,rating\nu,i,good\n", "r.csv:2 rating: must be a finite number: good"),
        ("user,item,rating\nu,i,nan\n", "r.csv:2 rating: must be a finite number: nan"),
        ("user,item,rating\nu,i,1e10\n", "r.csv:2 rating: must lie between -1e+09 and 1e+09: 1e10"),
        ("user,item,rating,t_seconds\nu,i,1,now\n", "r.csv:2 t_seconds: must be a finite number: now"),
        ("user,item,item,rating\nu,i,i,1\n", "r.csv:1: the same column twice: item"),
        ('user,item,rating\n"u,i,1\n', "r.csv:2: is no CSV"),
    ],
)
def test_file_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_ratings(_write(tmp_path, text), RatingColumns())

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """Its held-out rows would have been learned."""
    rows = [f"u{i % 7},i{i % 11},{i % 5},{i}\n" for i in range(60)]
    text = "user,item,rating,t_seconds\n" + "".join(rows)
    assert len(read_ratings(_write(tmp_path, text + rows[3]), RatingColumns())) == 61
    for again in (rows, rows[:30]):
        with pytest.raises(BadInput, match=rf"has {len(again)} rows twice"):
            read_ratings(_write(tmp_path, text + "".join(again)), RatingColumns())
    untimed = "user,item,rating\n" + 2 * "".join(row.rpartition(",")[0] + "\n" for row in rows)
    with pytest.raises(BadInput, match="has 60 rows twice"):
        read_ratings(_write(tmp_path, untimed), RatingColumns())


@pytest.mark.parametrize(
    ("columns", "option"),
    [
        (RatingColumns(reward=TIME), "--reward"),
        (RatingColumns(key=TIME), "--key"),
        (RatingColumns(item=TIME), "--item"),
    ],
)
def test_time_is_no_reward_key_or_item(tmp_path: Path, columns: RatingColumns, option: str) -> None:
    with pytest.raises(BadInput, match=f"{option}: names the column of times: name another one: t_seconds"):
        read_ratings(_write(tmp_path, "user,item,rating,t_seconds\nu,i,1,7\n"), columns)


def test_options_name_different_columns(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--key: names a column that another option names, too: item"):
        read_ratings(_write(tmp_path, "item,rating\ni,1\n"), RatingColumns(key="item"))
