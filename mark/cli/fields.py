"""Errors name fields of options; the command line shows them as flags."""

from __future__ import annotations

import re

from mark.domain.errors import BadInput, did_you_mean

# Fields whose flag is their name with dashes. `policy`, `predictor`, `catalog` and `model` are not among them: they
# also stand in service files, and errors about them hold for both places.
_SAME = """
    answers attribute began bill body certificate clients count_column count_unit cpu_index decimal executor faults
    function function_key function_ms gaps grpc_port hedge_after_ms history horizon_s host instance instances lineage
    log_filter markdown markets name out pace policies port queries ready_fd ready_file region replicas_in_clear
    running scale series service site size_column skip_bad_lines slo_ms stage_ca stage_key stages_in_clear state tail
    time_column time_format time_zone tls_cert tls_client_ca tls_key trace_requests
"""
_SCHEMES = ("synthetic", "cloudwatch")  # of traces that are not files
FLAGS = {field: f"--{field.replace('_', '-')}" for field in _SAME.split()} | {
    "at_s": "--at",
    "duration_s": "--duration",
    "function_model": "--model",
    "function_stage": "--stage",
    "max_disk_gib": "--max-disk",
    "replicas": "--replica",
    "services": "SERVICE",
    "stages_here": "--stage",
    "stages_at": "--stage-at",
    "stage_functions": "--stage-function",
    "start_s": "--start",
    "tags": "--tag",
    "train_s": "--train",
}


def with_flags(error: BadInput) -> str:
    """Return the message with flags instead of fields: as the place of the error, and in backquotes."""
    where = " and ".join(FLAGS.get(field, field) for field in error.where.split(" and "))
    what = re.sub(r"`(\w+)`", lambda found: FLAGS.get(found[1], found[0]), error.what)
    scheme, colon, rest = error.where.partition(":")
    if colon and what == "cannot be opened" and (hint := did_you_mean(scheme, _SCHEMES)):
        what += hint.replace("?", f":{rest}?")
    return str(BadInput(what, where, error.value))
