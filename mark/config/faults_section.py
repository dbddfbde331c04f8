"""The section `[faults]` of a service file, or alone in the file of `--faults`."""

from __future__ import annotations

from pathlib import Path

from mark.config.measured_faults import is_metrics, measured_faults
from mark.config.section import Section, check_sections, tables_of
from mark.domain.cells import is_file, not_a_file, read_bytes
from mark.domain.errors import BadInput
from mark.domain.faults import LONGEST_HANG_S, Faults

FAULT_KEYS = {
    "slow_share", "slow_s", "slow_factor", "slow_add_ms", "slow_answer_ms", "host_group", "hangs_per_hour", "hang_s",
    "crashes_per_hour",
}  # fmt: skip


# Keys of which each says nothing without one of the others.
_SLOWER = ("slow_factor", "slow_add_ms", "slow_answer_ms")
_TOGETHER = (
    *(("slow_share", _SLOWER), ("hang_s", ("hangs_per_hour",))),
    *((key, ("slow_share",)) for key in (*_SLOWER, "slow_s", "host_group")),
)


def load_faults(path: str) -> Faults:
    """Return the faults of a file with only `[faults]`, or of saved metrics of running instances. Raises BadInput."""
    file = Path(path)
    if not is_file(file):
        raise BadInput(not_a_file(file), "faults", path)
    if file.suffix != ".toml" and is_metrics(text := read_bytes(file).decode(errors="replace")):
        return measured_faults(text, path)
    tables = tables_of(file)
    check_sections(file, tables, {"faults": FAULT_KEYS})
    if "faults" not in tables:
        raise BadInput("has no section [faults]", path)
    return faults_of(Section(file, "faults", tables.get("faults", {})))


def faults_of(section: Section) -> Faults:
    """Return the faults of the section. Raises BadInput for impossible values."""
    own = Faults()
    found = Faults(
        slow_share=section.number("slow_share", own.slow_share),
        slow_s=section.number("slow_s", own.slow_s, above_zero=True),
        slow_factor=section.number("slow_factor", own.slow_factor),
        slow_add_s=section.number("slow_add_ms", own.slow_add_s * 1e3) / 1e3,
        slow_answer_s=section.number("slow_answer_ms", own.slow_answer_s * 1e3) / 1e3,
        host_group=section.whole("host_group", own.host_group),
        hangs_per_hour=section.number("hangs_per_hour", own.hangs_per_hour),
        hang_s=section.number("hang_s", own.hang_s, above_zero=True),
        crashes_per_hour=section.number("crashes_per_hour", own.crashes_per_hour),
    )
    if found.slow_share >= 1.0:
        raise BadInput("must be below 1, a share of the time", section.where("slow_share"), found.slow_share)
    if found.slow_factor < 1.0:
        raise BadInput(
            "must be 1 or more: nothing is faster than its profile", section.where("slow_factor"), found.slow_factor
        )
    if found.hang_s > LONGEST_HANG_S:
        what = f"must be {LONGEST_HANG_S:g} at most: a bouncer gives up a worker that hangs for longer"
        raise BadInput(what, section.where("hang_s"), found.hang_s)
    for key, others in _TOGETHER:
        if section.table.get(key) and not any(other in section.table for other in others):
            what = f"changes nothing without {' or '.join(others)}"
            raise BadInput(what, section.where(key), section.table[key])
    return found
