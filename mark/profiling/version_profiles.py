"""Profiles of a service whose versions differ in speed: one profile of the mix that is served.

The versions of a service share its machines, each with its own batches, so that a share w of the batches takes the time
of that version. A batch of b of the mix takes

    T(b) = sum of w_v T_v(b)

so that b / T(b) is the machine's capacity. The variance is the mixture's, from the variance of each version and the
differences between them. It is expressed as the lognormal of the same mean and variance, because these two determine
the waiting in a queue. Each version must keep the promise, not only their mean: a batch size stays only if the slowest
version keeps RT_max with it. A type on which one version cannot keep it at all gets that version's times, and is
refused for them. Overhead is the mean by shares as well; workers are the fewest, the basis is the weakest.

Planning for the slowest version alone would be safe but expensive, because the smallest canary would set the size of
the fleet. A function holds one version, the one with the largest share, and has its times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mark.domain.errors import BadInput
from mark.domain.function_offer import is_function
from mark.domain.load_unit import REQUESTS
from mark.domain.profile import Basis, Profile, ProfileRow
from mark.domain.service import ServiceConfig
from mark.domain.slo import Slo
from mark.models.registry_unpacked import PREFIX, profile_in
from mark.profiling.policy import candidate, p99_of, sigma_of, with_tail
from mark.profiling.table import load_profiles, measured_profiles

Profiles = Mapping[str, Profile]  # by instance

_WEAKEST = (Basis.ASSUMED, Basis.DERIVED, Basis.MEASURED)


def service_profiles(service: ServiceConfig) -> dict[str, dict[str, Profile]]:
    """Return the profiles by model and instance from the service's file.

    Those of its model are of the mix of its versions. A version has the profile that it was registered with, else the
    rows of its reference in the file, else the rows of the service's model, which all versions without one share. A
    version without requests is ignored. Rows in the service's unit get the time of a request of the mean size, and rows
    without a p99 the service's `tail`, for each version before the mix. Raises BadInput.
    """
    profiles = measured_profiles(service.profile_file, service.source)
    shared = profiles.get(service.model, {})
    served = [version for version in service.versions if version.weight > 0.0]
    own = [version_profiles(version.model, service, profiles, shared) for version in served]
    if all(each is shared for each in own):
        return profiles | {service.model: _with_tails(shared, service)} if shared else profiles
    weighted = [(version.weight, _with_tails(each, service)) for version, each in zip(served, own, strict=True)]
    mixed: dict[str, Profile] = {}
    for instance in sorted(set.intersection(*(set(each) for _, each in weighted))):
        parts = [(weight, each[instance]) for weight, each in weighted]
        if is_function(instance):
            mixed[instance] = max(parts, key=lambda part: part[0])[1]
        else:
            mixed[instance] = mix(service.model, parts, service.slo)
    return profiles | {service.model: mixed}


def _with_tails(profiles: Profiles, service: ServiceConfig) -> dict[str, Profile]:
    return {instance: with_tail(_of_requests(profile, service), service.tail) for instance, profile in profiles.items()}


def _of_requests(profile: Profile, service: ServiceConfig) -> Profile:
    """Return the profile with the time of a request of the mean size, if its times are of one unit."""
    unit, where = service.unit, f"{service.source or service.name} [service] unit"
    if profile.unit != unit.name:
        what = f"the profile of {profile.model} on {profile.instance} is in {profile.unit}, and the service in"
        raise BadInput(what, where, unit.name)
    if unit.is_requests:
        return profile
    (row,) = profile.rows
    try:
        return replace(profile, rows=(replace(row, latency_ms=row.latency_ms * unit.size, unit=REQUESTS.name),))
    except BadInput as error:
        raise BadInput(f"on {profile.instance} {error.what}, of a request", f"{where}_size", unit.size) from None


def version_profiles(
    reference: str, service: ServiceConfig, profiles: Mapping[str, Profiles], shared: Profiles
) -> Profiles:
    """Return the profiles of one version by instance, or `shared` if it has none."""
    file, model = profile_source(reference, service, profiles)
    if file != service.profile_file:
        return load_profiles(file)[model]
    return shared if model == service.model else profiles[model]


def profile_source(reference: str, service: ServiceConfig, profiles: Mapping[str, Profiles]) -> tuple[str | None, str]:
    """Return the file with the profile of one version (None: the shipped table), and its model's name there."""
    if reference.startswith(PREFIX):
        found = profile_in(Path(service.source).resolve().parent / reference.removeprefix(PREFIX))
        if found is not None:
            return str(found[0]), found[1]
    return service.profile_file, reference if reference in profiles else service.model


def mix(model: str, parts: Sequence[tuple[float, Profile]], slo: Slo) -> Profile:
    """Return the profile of one instance type for versions that share it, each with its share of the requests."""
    if len(parts) == 1:
        return parts[0][1]
    slowest = max((part for _, part in parts), key=lambda part: part.latency_s(1) + part.overhead_s)
    if isinstance(candidate(slowest, slo), str):
        return slowest
    most = min(part.rows[-1].batch for _, part in parts)
    sizes = sorted({1, *(row.batch for _, part in parts for row in part.rows if row.batch <= most)})
    kept = [batch for batch in sizes if batch == 1 or all(_fits(part, batch, slo) for _, part in parts)]
    workers = min(part.workers for _, part in parts)
    overhead_ms = sum(weight * part.rows[0].overhead_ms for weight, part in parts)
    basis = next(each for each in _WEAKEST if any(row.basis == each for _, part in parts for row in part.rows))
    return Profile(model, parts[0][1].instance, tuple(_row(parts, b, workers, overhead_ms, basis) for b in kept))


def _row(
    parts: Sequence[tuple[float, Profile]], batch: int, workers: int, overhead_ms: float, basis: Basis
) -> ProfileRow:
    times_ms = [(weight, part.latency_s(batch) * 1e3, max(map(sigma_of, part.rows))) for weight, part in parts]
    mean_ms = sum(weight * time_ms for weight, time_ms, _ in times_ms)
    used = [part.vcpus for _, part in parts]
    # For a lognormal with mean m, the mean of the squares is m^2 exp(sigma^2).
    squares = sum(weight * time_ms**2 * math.exp(sigma**2) for weight, time_ms, sigma in times_ms)
    sigma = math.sqrt(max(0.0, math.log(squares / mean_ms**2)))
    return ProfileRow(
        batch=batch,
        latency_ms=mean_ms,
        p99_ms=p99_of(mean_ms, sigma) if sigma > 1e-6 else None,
        overhead_ms=overhead_ms,
        workers=workers,
        vcpus=max(vcpus for vcpus in used if vcpus is not None) if None not in used else None,
        memory_mb=max(part.memory_mb for _, part in parts) or None,
        basis=basis,
        tail_derived=any(row.tail_derived for _, part in parts for row in part.rows),
    )


def _fits(part: Profile, batch: int, slo: Slo) -> bool:
    return 2.0 * part.latency_s(batch) <= slo.rt_max_s - part.overhead_s
