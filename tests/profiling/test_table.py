"""Profiles: the shipped ones, and the refused ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.domain.profile import Basis, Profile
from mark.profiling.table import load_profiles

HEAD = "model,instance,batch,latency_ms,p99_ms,w_batch_ms,overhead_ms,cold_ms,workers,basis\n"


def profiles(folder: Path, text: str) -> dict[str, dict[str, Profile]]:
    path = folder / "own.csv"
    path.write_text(text)
    return load_profiles(str(path))


def test_rows_are_grouped_and_sorted_by_batch(tmp_path: Path) -> None:
    read = profiles(tmp_path, HEAD + "m,x,4,30,40,5,1,,2,derived\nm,x,1,10,,,1,200,2,\nn,x,1,5,,,,,,assumed\n")
    assert set(read) == {"m", "n"}
    one, four = read["m"]["x"].rows
    assert (one.batch, one.basis, one.cold_ms, one.p99_ms) == (1, Basis.MEASURED, 200.0, None)
    assert (four.batch, four.basis, four.p99_ms, four.w_batch_ms) == (4, Basis.DERIVED, 40.0, 5.0)
    assert (read["m"]["x"].workers, read["m"]["x"].overhead_s) == (2, 0.001)
    assert read["n"]["x"].rows[0].basis is Basis.ASSUMED


def test_a_request_alone_takes_its_share_of_the_smallest_batch(tmp_path: Path) -> None:
    rows = "m,c5.large,1,10,,,,,,\nm,c5.large,4,40,,,,,,\nm,g4.large,1,30,,,,,,\nm,g4.large,4,40,,,,,,\n"
    read = profiles(
        tmp_path, HEAD + rows + "m,c5.xlarge,4,20,30,9,1,,2,\nm,p3.large,4,8,,,,,,\nm,c5.metal,3,9,,,,,,\n"
    )["m"]
    of_family, four = read["c5.xlarge"].rows
    assert (of_family.batch, of_family.latency_ms, of_family.p99_ms, of_family.w_batch_ms) == (1, 5.0, 7.5, None)
    assert (of_family.workers, of_family.overhead_ms, of_family.basis) == (2, 1.0, Basis.DERIVED)
    assert (four.batch, four.latency_ms, four.basis) == (4, 20.0, Basis.MEASURED)
    assert read["p3.large"].rows[0].latency_ms == 8.0 * 0.5  # of a quarter and three quarters
    assert [row.batch for row in read["c5.metal"].rows] == [3]  # no type has rows of 1 and 3


def test_what_follows_from_an_assumed_row_is_assumed() -> None:
    alone, two = load_profiles()["opennmt-ende"]["c5.2xlarge"].rows
    assert alone.latency_ms == pytest.approx(two.latency_ms * 894.0 / 1500.0)
    assert (alone.basis, two.basis) == (Basis.ASSUMED, Basis.MEASURED)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "own.csv: is empty"),
        ("model,instance,batch\n", "own.csv:1: missing column: latency_ms"),
        ("model,instance,batch,latency_ms,speed\n", "own.csv:1: unknown column: speed"),
        (HEAD, "own.csv: the profile has no row"),
        (HEAD + "m,x,1,10,,,,,,\nm,x,1,11,,,,,,\n", "own.csv:3 batch: the same model, instance and batch twice: 1"),
        (HEAD + "m,x,1,nan,,,,,,\n", "own.csv:2 latency_ms: must be a finite number: nan"),
        (HEAD + "m,x,1,-3,,,,,,\n", "own.csv:2 latency_ms: must be at least 0: -3"),
        (HEAD + "m,x,1,0,,,,,,\n", "own.csv:2 latency_ms: a latency must be above zero: 0.0"),
        (HEAD + "m,x,0,3,,,,,,\n", "own.csv:2 batch: must be at least 1: 0"),
        (HEAD + "m,x,1.5,3,,,,,,\n", "own.csv:2 batch: must be a whole number: 1.5"),
        (HEAD + "m,,1,3,,,,,,\n", "own.csv:2 instance: must not be blank"),
        (HEAD + "m,x,1,3,2,,,,,\n", "own.csv:2 p99_ms: p99 must not be below the mean: 2.0"),
        (HEAD + "m,x,1,3,45,,,,,\n", "own.csv:2 p99_ms: no lognormal has a p99 of more than 14.97 x its mean: 45.0"),
        (HEAD + "m,x,1,3,,-1,,,,\n", "own.csv:2 w_batch_ms: must be at least 0: -1"),
        (HEAD + "m,x,1,3,,,,-1,,\n", "own.csv:2 cold_ms: must be at least 0: -1"),
        (HEAD + "m,x,1,3,,,,,0,\n", "own.csv:2 workers: must be at least 1: 0"),
        (HEAD + "m,x,1,3,,,,,,guess\n", "own.csv:2 basis: must be one of measured, derived, assumed: guess"),
        (HEAD + "m,x,1,3,,,,,1,\nm,x,2,3,,,,,2,\n", "own.csv:3 workers: all batch sizes of a type share one number: 2"),
        (HEAD + "m,x,1,3,,,1,,,\nm,x,2,3,,,,,,\n", "own.csv:3 overhead_ms: all batch sizes of a type share one"),
    ],
)
def test_a_wrong_row_is_named_by_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        profiles(tmp_path, text)
    assert message in str(caught.value)


UNITS = "model,instance,unit,units_per_s,workers,overhead_ms\n"


def test_throughput_in_units_is_shared_by_the_workers(tmp_path: Path) -> None:
    read = profiles(tmp_path, UNITS + "llama,g6.xlarge,tokens,2400,16,200\nllama,g5.xlarge,tokens,1000,,\n")["llama"]
    (row,) = read["g6.xlarge"].rows
    assert (read["g6.xlarge"].unit, row.batch, row.workers, row.overhead_ms) == ("tokens", 1, 16, 200.0)
    assert row.latency_ms == pytest.approx(16e3 / 2400.0)  # of one token
    assert read["g5.xlarge"].rows[0].latency_ms == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "m,x,tokens,0,,\n",
            "own.csv:2 units_per_s: a worker does between 1e-06 and 1e+06 units/s: choose another unit",
        ),
        ("m,x,tokens,9e9,,\n", "own.csv:2 units_per_s: a worker does between"),
        ("m,x,tokens,fast,,\n", "own.csv:2 units_per_s: must be a finite number: fast"),
        ("m,x,tokens,,,\n", "own.csv:2 units_per_s: must not be blank"),
        ("m,x,,5,,\n", "own.csv:2 unit: must not be blank"),
        ("m,x,tokens/s,5,,\n", "own.csv:2 unit: must be a word of at most 31 letters, digits, - and _: tokens/s"),
        ("m,x,requests,5,,\n", "own.csv:2 unit: requests have the columns batch and latency_ms: requests"),
        ("m,x,tokens,5,,\nm,x,pages,6,,\n", "own.csv:3 instance: the same model and instance twice: x"),
    ],
)
def test_throughput_that_cannot_be_is_named_by_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        profiles(tmp_path, UNITS + text)
    assert message in str(caught.value)


def test_throughput_goes_without_times_of_batches(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"own.csv:1: unknown column: latency_ms"):
        profiles(tmp_path, "model,instance,unit,units_per_s,latency_ms\nm,x,tokens,5,5\n")


def test_the_shipped_profiles_have_the_rates_of_the_authors() -> None:
    shipped = load_profiles()
    assert {model for model in shipped if not model.endswith("-2026")} == {
        "inception-v3", "inception-resnet-v2", "nasnet", "lstm-ptb", "opennmt-ende",
    }  # fmt: skip
    per_minute = {
        instance: profile.rows[-1].batch * 60e3 / profile.rows[-1].latency_ms
        for instance, profile in shipped["inception-v3"].items()
        if instance.startswith(("c5", "p2"))
    }
    assert per_minute == pytest.approx(
        {"c5.large": 284, "c5.xlarge": 490, "c5.2xlarge": 771, "c5.4xlarge": 1080, "p2.xlarge": 8 * 415}, rel=1e-12
    )
    assert 60.0 / shipped["lstm-ptb"]["c5.xlarge"].latency_s(1) == pytest.approx(3100, rel=1e-12)


def test_functions_have_the_times_that_are_promised() -> None:
    shipped = load_profiles()
    rows = {
        model: of_model["lambda:3008"].rows[0] for model, of_model in shipped.items() if not model.endswith("-2026")
    }
    assert {model: row.latency_ms for model, row in rows.items()} == {
        "inception-v3": 380.0, "inception-resnet-v2": 785.0, "nasnet": 2300.0, "lstm-ptb": 70.0, "opennmt-ende": 3100.0,
    }  # fmt: skip
    assert rows["inception-v3"].cold_ms == 2860.0
    assert {model for model, row in rows.items() if row.basis is Basis.ASSUMED} == {"nasnet", "lstm-ptb"}
    # A larger model takes longer to load.
    assert all(row.cold_ms is not None for row in rows.values())
    by_size = [rows[model].cold_ms or 0.0 for model in ("lstm-ptb", "inception-v3", "opennmt-ende", "nasnet")]
    assert by_size == sorted(by_size)


def test_derived_sizes_change_no_service_time() -> None:
    """Times are linear between measured sizes; a row on that line only allows its size as N_batch."""
    for model in ("inception-v3", "nasnet", "opennmt-ende"):
        rows = load_profiles()[model]["p2.xlarge"].rows
        assert [row.batch for row in rows] == list(range(1, 9))
        one_ms, eight_ms = rows[0].latency_ms, rows[7].latency_ms
        for row in rows[1:7]:
            assert row.basis is Basis.DERIVED
            assert row.latency_ms == pytest.approx(one_ms + (row.batch - 1) * (eight_ms - one_ms) / 7.0, rel=1e-12)


SECONDS = "model,instance,batch,latency_ms,cold_ms,source\n"


@pytest.mark.parametrize(
    ("rows", "cell"),
    [
        ("m,x,1,0.038,,\nm,x,4,0.121,,\n", "latency_ms: .*: 0.038"),
        ("m,x,1,.25,,\nm,x,4,0.051,,\nm,y,1,0.1,,\n", "latency_ms: .*: 0.051"),
        ("m,x,1,0.321,,\nm,x,4,0.754,,\n", "latency_ms: .*: 0.321"),
        ("m,x,1,0.4,1.9,by hand\nm,x,4,1.2,,by hand\n", "cold_ms: .*: 1.9"),
        ("m,x,1,0.019,0.9,\nm,x,8,2.5,,\n", "latency_ms: .*: 0.019"),
    ],
)
def test_seconds_are_refused(tmp_path: Path, rows: str, cell: str) -> None:
    with pytest.raises(BadInput, match=rf"own.csv:\d {cell}") as refused:
        profiles(tmp_path, SECONDS + rows)
    assert "are these seconds? Write milliseconds; if they are, say `ms` in the column source" in str(refused.value)


@pytest.mark.parametrize(
    "rows",
    [
        "m,x,1,0.031,,\nm,x,2,50,,\nm,x,4,80,,\n",
        "m,x,1,31,,\nm,x,2,50,,\nm,y,1,0.016,,\n",
        "m,x,1,31,,\nm,x,2,50,,\nm,x,4,0.09,,\n",
    ],
)
def test_seconds_among_milliseconds_are_refused(tmp_path: Path, rows: str) -> None:
    with pytest.raises(BadInput, match=r"latency_ms: are these seconds\?"):
        profiles(tmp_path, SECONDS + rows)


@pytest.mark.parametrize(
    ("rows", "batch"),
    [
        ("m,x,1,31,,\nm,x,2,20,,\nm,x,4,12,,\n", 2),
        ("m,x,1,31,,\nm,x,2,33,,\nm,x,4,20,,\n", 4),
        ("m,y,8,90,,\nm,x,1,5,,\nm,x,16,1.5,,\n", 16),
    ],
)
def test_times_of_one_request_in_a_batch_are_refused(tmp_path: Path, rows: str, batch: int) -> None:
    with pytest.raises(BadInput, match=rf"m on x latency_ms: a batch of {batch} takes less .* time of the whole batch"):
        profiles(tmp_path, SECONDS + rows)


def test_a_batch_that_takes_a_little_less_is_read(tmp_path: Path) -> None:
    assert "m" in profiles(tmp_path, SECONDS + "m,x,1,31,,\nm,x,2,29,,\nm,x,4,30,,\n")


@pytest.mark.parametrize(
    "rows",
    [
        "m,x,1,0.038,,measured in ms\n",
        "m,x,1,0.1234,0.5,mark profile: 900 times\n",
        "m,x,1,0.25,,\nm,x,4,0.8,,\n",
        "m,x,1,12,900,\nm,y,1,0.19,,\nm,z,1,14,,\n",
    ],
)
def test_short_times_in_milliseconds_are_read(tmp_path: Path, rows: str) -> None:
    assert "m" in profiles(tmp_path, SECONDS + rows)


def test_measured_times_below_a_millisecond_are_read_without_their_source(tmp_path: Path) -> None:
    """A registry keeps what `mark profile` wrote without the column source."""
    header = "model,instance,batch,latency_ms,p99_ms,w_batch_ms,overhead_ms,cold_ms,workers,vcpus,memory_mb,basis\n"
    assert "m" in profiles(tmp_path, f"{header}m,x,1,0.6393,4.6307,,0.0546,656.0,2,0.476,35.3,measured\n")
