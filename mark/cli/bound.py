"""mark bound: the clairvoyant lower bound of the bill, of a service or of a pipeline."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from mark.cli.arguments import writable
from mark.cli.options import add_pipeline_options, add_run_options, refuse_pipeline_options, request_from
from mark.cli.output import deliver, progress
from mark.config.pipeline_file import names_pipeline
from mark.domain.errors import BadInput
from mark.planning.bounds.certificate import BoundCertificate
from mark.simulation.bounding import bound
from mark.studies.pipeline_bound_study import bound_pipeline
from mark.studies.report.bound_report import bound_report, pipeline_bound_report


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "A proven lower bound of the bill of every policy that answers all of the requests, "
        "or as many as the SLO asks for; of a pipeline by stage, too."
    )
    parser.add_argument("trace", metavar="TRACE", help="file, folder or synthetic:NAME?key=value")
    add_pipeline_options(parser, answers=False)
    add_run_options(parser)
    parser.add_argument(
        "--certificate",
        metavar="FILE",
        type=lambda text: Path(writable(text, "--certificate")),
        help="write what proves the bound in whole instances, for scripts/check_bound.py (a .npz file)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if names_pipeline(args.service):
        return _pipeline(args)
    refuse_pipeline_options(args)
    with progress("bounding") as bar:
        found = bound(request_from(args, bar), certify=args.certificate is not None)
    certificate = None if found.certificate is None else _written(found.certificate, args.certificate)
    deliver(bound_report(args.service, args.trace, found, certificate), args.json)
    return 0


def _written(certificate: BoundCertificate, file: Path) -> dict[str, Any]:
    """Write the certificate and return its entry for the JSON. Raises BadInput."""
    try:
        file.write_bytes(certificate.content)
    except OSError as error:
        raise BadInput("cannot be written: " + (error.strerror or str(error)), "--certificate", str(file)) from error
    return {"file": str(file), "usd": certificate.usd, "sha256": certificate.sha256}


def _pipeline(args: argparse.Namespace) -> int:
    if args.tail is not None:
        raise BadInput("a pipeline is bounded without this option", "--tail")
    if args.certificate is not None:
        raise BadInput("the bound of a pipeline has no certificate", "--certificate", str(args.certificate))
    # The output of a driver and its models must not mix with the result.
    with progress("bounding") as bar, redirect_stdout(sys.stderr):
        found = bound_pipeline(request_from(args), lineage=args.lineage, queries=args.queries, progress=bar)
    deliver(pipeline_bound_report(args.service, found), args.json)
    return 0
