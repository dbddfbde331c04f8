"""The account's quotas, and the vCPUs and function environments that a site's services need at their limits.

Quotas of EC2 are in vCPUs, by family of types and by market. Lambda's quota is one number for all functions.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha1

from mark.cloud.ec2.refusal import counts_as_p5
from mark.domain.errors import CloudError, NotFoundError
from mark.domain.offer import Market, Offer
from mark.domain.service import ResolvedService
from mark.studies.report.quotas import QuotaLine
from mark_infra.aws.gate import Gate
from mark_infra.deploy.limits import reserved_concurrency

FUNCTIONS = "functions at once"
_FUNCTIONS_CODE = "L-B99A9384"
CONTROLLER_VCPU = CONDUCTOR_VCPU = 2
# AWS keeps this many for functions without a reservation.
UNRESERVED = 100
USUAL_FUNCTIONS = 1000  # assumed if the quota cannot be read
# codes by family and whether spot
_CODES = {
    ("standard", False): "L-1216C47A",
    ("standard", True): "L-34B43A08",
    ("G and VT", False): "L-DB2E81BA",
    ("G and VT", True): "L-3819A6DF",
    ("P", False): "L-417A185B",
    ("P", True): "L-7212CCBC",
    ("P5", True): "L-C4BD4855",  # on demand they count as P
    ("Inf", False): "L-1945791B",
    ("Inf", True): "L-B5D1601B",
    ("F", False): "L-74FC7D96",
    ("F", True): "L-88CF9481",
    ("X", False): "L-7295265B",
    ("X", True): "L-E3A00192",
}
_OWN = {"g": "G and VT", "gr": "G and VT", "vt": "G and VT", "p": "P", "inf": "Inf", "f": "F", "x": "X"}
_OTHERS = frozenset(("dl", "hpc", "mac", "trn"))  # types with other quotas, which no catalogue has
_STANDARD = "acdhimrtz"


def family(instance: str, *, spot: bool = False) -> str | None:
    """Return the family whose quota an instance type counts against; None for an unknown type."""
    if spot and counts_as_p5(instance):
        return "P5"
    letters = re.match(r"[a-z]*", instance)
    name = letters[0] if letters else ""
    if name in _OWN or name in _OTHERS:
        return _OWN.get(name)
    return "standard" if name[:1] and name[0] in _STANDARD else None


def needed(services: Sequence[ResolvedService], conductors: Mapping[str, int] | None = None) -> list[QuotaLine]:
    """Return the quotas that the services need at their limits, with the controller and conductors by pipeline.

    `allowed` is not known yet.
    """
    vcpus: defaultdict[tuple[str, bool], dict[str, int]] = defaultdict(dict)
    vcpus["standard", False]["the controller"] = CONTROLLER_VCPU
    for pipeline, count in (conductors or {}).items():
        vcpus["standard", False][f"{pipeline}'s conductors"] = CONDUCTOR_VCPU * count
    environments: dict[str, int] = {}
    for of in services:
        by_quota: defaultdict[tuple[str, bool], list[Offer]] = defaultdict(list)
        for offer in of.offers:
            spot = offer.market is Market.SPOT
            if (found := family(offer.instance, spot=spot)) is not None:
                by_quota[found, spot].append(offer)
        for quota, offers in by_quota.items():
            vcpus[quota][of.service.name] = _most_vcpus(of, offers)
        if of.function is not None:
            environments[of.service.name] = reserved_concurrency(of) or of.function.offer.concurrency
    lines = []
    for (kind, spot), code in _CODES.items():
        if by_service := vcpus.get((kind, spot), {}):
            what = f"vCPUs {'on spot' if spot else 'on demand'} ({kind})"
            lines.append(QuotaLine(what, code, sum(by_service.values()), None, tuple(by_service)))
    if environments:
        lines.append(QuotaLine(FUNCTIONS, _FUNCTIONS_CODE, sum(environments.values()), None, tuple(environments)))
    return lines


def read(gate: Gate, lines: Sequence[QuotaLine], say: Callable[[str], None]) -> list[QuotaLine]:
    """Return the lines with the account's quotas, as far as AWS returns them; a failure is reported in one line."""
    found: list[QuotaLine] = []
    refused: CloudError | None = None
    for line in lines:
        allowed = None
        if refused is None:
            service = "lambda" if line.code == _FUNCTIONS_CODE else "ec2"
            try:
                allowed = _allowed(gate, service, line.code)
            except CloudError as error:
                refused = error
        found.append(replace(line, allowed=allowed))
    if refused is not None:
        say(f"the account's quotas are not known: {' '.join(str(refused).split())}")
    for line in found:
        if line.short:
            say(line.warning)
    return found


def unreserved(gate: Gate, site: str, services: Sequence[ResolvedService], say: Callable[[str], None]) -> int | None:
    """Return the environments that other functions have not reserved; None if unknown.

    Reservations of these services' own functions count as free.
    """
    names = [function_name(site, of.service.name) for of in services if reserved_concurrency(of) is not None]
    if not names:
        return None
    try:
        settings = gate.call(gate.client("lambda").get_account_settings)
        left = int(settings["AccountLimit"]["UnreservedConcurrentExecutions"])
        return left + sum(_reserved(gate, name) for name in names)
    except CloudError as error:
        say(f"the account's reserved concurrency is not known: {' '.join(str(error).split())[:200]}")
        return None


def function_name(site: str, service: str) -> str:
    """Return the name that Terraform gives to a service's function (terraform/modules/overflow)."""
    clean = re.sub(r"[^A-Za-z0-9-]", "-", service)
    short = clean if len(clean) <= 32 else f"{clean[:23]}-{sha1(service.encode()).hexdigest()[:8]}"
    return f"{site}_{short}-overflow"


def reservations(
    services: Sequence[ResolvedService],
    lines: Sequence[QuotaLine],
    say: Callable[[str], None],
    unreserved: int | None = None,
) -> dict[str, int | None]:
    """Return the concurrency to reserve for each service's function, by service; None: no reservation.

    A reservation is also a limit, and Lambda requires that 100 environments remain for functions without one.
    `unreserved` are the environments that other functions have not reserved; None: others reserve none. A service whose
    reservation does not fit gets none; each of its bouncers then keeps the limit by itself. A reservation of at least
    the account's whole quota would limit nothing.
    """
    known = next((line.allowed for line in lines if line.what == FUNCTIONS), None)
    allowed = USUAL_FUNCTIONS if known is None else known
    free = allowed if unreserved is None else unreserved
    left = free - UNRESERVED
    found: dict[str, int | None] = {}
    for of in sorted(services, key=lambda of: (reserved_concurrency(of) or 0, of.service.name)):
        name, wanted = of.service.name, reserved_concurrency(of)
        found[name] = wanted if wanted is not None and wanted <= left else None
        left -= found[name] or 0
        if wanted is not None and found[name] is None and wanted < allowed:
            say(
                f"{name}: {wanted:,} environments of its function cannot be reserved, of {free:,} that are free "
                f"{UNRESERVED} stay for others: {of.service.max_function_usd_per_hour:g} $/h hold for a bouncer alone"
            )
    return found


def _reserved(gate: Gate, function: str) -> int:
    """Return the function's reserved concurrency; 0 if it does not exist."""
    try:
        found = gate.call(gate.client("lambda").get_function_concurrency, FunctionName=function)
    except NotFoundError:
        return 0
    return int(found.get("ReservedConcurrentExecutions", 0))


def _most_vcpus(of: ResolvedService, offers: Sequence[Offer]) -> int:
    """Return the most vCPUs of a fleet of these offers within the service's limits."""
    by_count = of.service.max_instances * max(offer.vcpu for offer in offers)
    by_price = of.service.max_usd_per_hour * max(offer.vcpu / offer.usd_per_hour for offer in offers)
    return math.floor(min(by_count, by_price) + 1e-9)


def _allowed(gate: Gate, service: str, code: str) -> int | None:
    """Return the account's quota, or AWS's default; None for a quota unknown to AWS. Raises CloudError."""
    quotas = gate.client("service-quotas")
    for method in (quotas.get_service_quota, quotas.get_aws_default_service_quota):
        try:
            return int(gate.call(method, ServiceCode=service, QuotaCode=code)["Quota"]["Value"])
        except NotFoundError:
            continue
        except CloudError as error:
            if "NoSuchResourceException" not in str(error):
                raise
    return None
