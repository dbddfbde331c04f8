"""Measure a model on rented instance types, and find the type on which a million requests cost least."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from mark.config.service_file import load_service
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import (
    BadInput,
    CloudError,
    MarkError,
    did_you_mean,
)
from mark.domain.offer import Catalog, Market, Offer
from mark.domain.service import ServiceConfig
from mark.domain.slo import Slo
from mark.models import oip, sagemaker
from mark.models.call import Call
from mark.models.from_server import ServerModel
from mark.models.loading import find
from mark.models.sample import sample_call
from mark.models.tensors import BadCall
from mark.profiling.measure import SIZES, Measured, profile_csv
from mark.profiling.measure_server import OF_A_CLIENT, Profiling, measured_of
from mark.profiling.search import ProfileSearch, Rent, RoundsInTime, SearchGoal, longest_s
from mark.serving.frontend.auth import INFER, key_with, read_keys
from mark_infra.aws.balancer import Balancer
from mark_infra.aws.ec2_cloud import Ec2Cloud, InstancePorts
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import PERIOD_S, Inventory
from mark_infra.aws.orphans import GRACE_S
from mark_infra.aws.readiness import AskedBouncers
from mark_infra.aws.site import TO_MEASURE, Site, load_site
from mark_infra.launch.rented_search import LeftS, RentalBill, RentalOverdue, RentedSearch
from mark_infra.store.store import ServiceStore, open_table
from mark_infra.telemetry.clock import WallClock
from mark_infra.testbed.control_server import Remote
from mark_infra.testbed.environment import of_aws
from mark_infra.testbed.testbed_folder import DAEMON

log = logging.getLogger("mark.profiling")

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOnOptions:
    """The options of `mark profile --on`. `site` None: the file that MARK_SITE names. `markets` None: the service's.

    `out` is a profile file that gets the rows of each type as soon as it is measured.
    """

    service: str
    types: Sequence[str]
    budget_usd: float
    site: Path | None = None
    markets: Sequence[Market] | None = None
    slo_ms: float | None = None
    batches: tuple[int, ...] = SIZES
    seconds: float = 10.0
    precision: float = 0.02
    seed: int = 0
    call: Call | None = None
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class ProfiledOn:
    """The result of a search. `why` has, for every type, its cost or the reason why it was not rented."""

    model: str
    rt_max_s: float
    budget_usd: float
    best: str | None
    why: Mapping[str, str]
    usd_per_million: Mapping[str, float]
    measured: Mapping[str, Measured]
    bills: Mapping[str, Sequence[RentalBill]]

    @property
    def usd(self) -> float:
        return sum(bill.usd for bills in self.bills.values() for bill in bills)

    def as_json(self) -> dict[str, object]:
        """Return schema 1 of docs/profiles.md."""
        return {
            "schema": 1,
            "model": self.model,
            "rt_max_ms": self.rt_max_s * 1e3,
            "budget_usd": self.budget_usd,
            "usd": self.usd,
            "best": self.best,
            "types": {
                name: {
                    "usd_per_million": self.usd_per_million.get(name),
                    "usd": sum(bill.usd for bill in self.bills.get(name, ())),
                    "rentals": [
                        {"offer": bill.offer, "seconds": bill.seconds, "usd": bill.usd}
                        for bill in self.bills.get(name, ())
                    ],
                    "mean_ms": {
                        str(size.batch): size.mean_s * 1e3
                        for size in (self.measured[name].sizes if name in self.measured else ())
                    },
                    "notes": list(self.measured[name].notes) if name in self.measured else [],
                    "why": why,
                }
                for name, why in self.why.items()
            },
        }


class ProfileFile:
    """The measured rows in a file that is a complete profile at any moment; None: no file."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._kept: list[str] = []

    def keep(self, measured: Measured) -> None:
        """Write the measurement's rows; a failure is only logged, so that the search continues."""
        if self._file is None:
            return
        try:
            save_profile(measured, self._file)
        except (OSError, BadInput) as error:
            log.warning("%s could not be written to %s: %s", measured.instance, self._file, error)
        else:
            self._kept = [*(name for name in self._kept if name != measured.instance), measured.instance]

    def at_early_end(self) -> str | None:
        """Return a line about the file's content if the search ends early; None without a file."""
        if self._file is None:
            return None
        if not self._kept:
            return f"ended early: nothing was measured, and {self._file} is as it was"
        return f"ended early: {self._file} has the measurements on {', '.join(self._kept)}"


def save_profile(measured: Measured, file: Path) -> None:
    """Write the rows into the profile file atomically, so that readers find the old file or the new one.

    Raises OSError, and BadInput if the file exists and is not a profile.
    """
    text = profile_csv([measured], file)
    target = file.resolve()  # keep a symbolic link
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8", errors="backslashreplace") as written:
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
        if target.exists():
            unfinished.chmod(target.stat().st_mode & 0o777)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def profile_on(options: ProfileOnOptions, tell: Callable[[str], None] = lambda line: None) -> ProfiledOn:
    """Rent, measure, terminate, and return results and bills. `tell` gets the progress. Raises BadInput, CloudError."""
    service = load_service(options.service)
    path = options.site or os.environ.get("MARK_SITE")
    if not path:
        raise BadInput("say where to rent: --site FILE, or MARK_SITE (mark testbed up makes a site here)", "--on")
    site = load_site(Path(path))
    if site.time_scale != 1.0:
        raise BadInput("a testbed that compresses time cannot be measured on", f"{path} time_scale", site.time_scale)
    own = site.to_measure(service.name)
    catalog = load_catalog(service.catalog)
    markets = service.markets if options.markets is None else tuple(options.markets)
    offers = offers_of(catalog, options.types, markets, list(own.service(service.name + TO_MEASURE).subnets))
    slo = service.slo if options.slo_ms is None else Slo(options.slo_ms / 1e3, service.slo.attainment)
    wanted = SearchGoal(slo, service.batching, options.batches, options.seconds)
    for of_type in offers.values():
        if (lasts_s := longest_s(of_type[-1], wanted)) >= GRACE_S:  # a running controller would end it as left over
            what = f"with {of_type[-1].instance} a rental may last {lasts_s:.0f} s, and must be over in {GRACE_S:.0f} s"
            raise BadInput(what, "--seconds", options.seconds)
    search = ProfileSearch([of_type[-1] for of_type in offers.values()], wanted, options.budget_usd)
    file = ProfileFile(options.out)
    rented = _rented(options, service, own, catalog, offers, search, _reached(Path(path)), tell)
    rented.keep = file.keep
    try:
        stop = rented.execute()
    except BaseException:  # also after an interrupt
        if (line := file.at_early_end()) is not None:
            tell(line)
        raise
    return ProfiledOn(
        model=service.model,
        rt_max_s=slo.rt_max_s,
        budget_usd=options.budget_usd,
        best=stop.best,
        why=stop.why,
        usd_per_million=search.costs(),
        measured=rented.measured,
        bills=rented.bills,
    )


def offers_of(
    catalog: Catalog, types: Sequence[str], markets: Sequence[Market], zones: Sequence[str]
) -> dict[str, list[Offer]]:
    """Return the offers by type: spot in these zones, cheapest first, if the markets allow; last the on-demand one.

    Raises BadInput for a type that is not sold on demand, and for a burstable, which cannot always be busy.
    """
    fixed = {o.instance: o for o in catalog.offers if o.market is Market.ON_DEMAND}
    burstable = {o.instance for o in catalog.offers if o.market is Market.BURSTABLE}
    found = {}
    for name in types:
        if name in burstable - fixed.keys():
            raise BadInput("is burstable: types are compared as always busy, and its credits would end", "--on", name)
        if name not in fixed:
            raise BadInput(f"the catalogue {catalog.name} has no such type{did_you_mean(name, fixed)}", "--on", name)
        spot = [o for o in catalog.offers if o.instance == name and o.market is Market.SPOT and o.zone in zones]
        spot.sort(key=lambda offer: (offer.usd_per_hour, offer.name))
        found[name] = [*(spot if Market.SPOT in markets else ()), fixed[name]]
    return found


def _reached(site: Path) -> dict[str, str]:
    """Return how botocore reaches a site's cloud: a testbed that runs in the site's folder, otherwise the usual way."""
    daemon = site.parent / DAEMON
    if not daemon.exists():
        return {}
    found = of_aws({}, "")
    return {
        "endpoint_url": Remote(daemon).endpoint,
        "aws_access_key_id": found["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": found["AWS_SECRET_ACCESS_KEY"],
    }


def _rented(
    options: ProfileOnOptions,
    service: ServiceConfig,
    site: Site,
    catalog: Catalog,
    offers: Mapping[str, Sequence[Offer]],
    search: ProfileSearch,
    reached: Mapping[str, str],
    tell: Callable[[str], None],
) -> RentedSearch:
    name = service.name + TO_MEASURE
    gate = Gate(site, options=reached)
    inventory, bouncers = Inventory(gate, site), AskedBouncers(site)
    clock = WallClock(time.time(), site.time_scale)
    store = ServiceStore(open_table(site.store, gate), name)
    # All offers, because an instance left over by another run may be of a type that this run does not name.
    sold = [offer for offer in catalog.offers if offer.market is not Market.SAGEMAKER]
    balancer = Balancer(gate, site.service(name), {})  # measured services lack target groups
    around = InstancePorts(bouncers, balancer, _NoNotices())
    cloud = Ec2Cloud(name, sold, site, gate, inventory, store, clock, around)
    key = _key(site)

    def look() -> None:
        time.sleep(PERIOD_S)
        try:
            inventory.refresh()
            bouncers.poll(inventory.snapshot().of(name))
            cloud.upkeep()
        except CloudError as error:  # the next look may succeed, and the rental's time limits their number
            log.warning("%s", error)

    def measure(number: int, rent: Rent, left_s: LeftS) -> Measured:
        addresses = {cloud.number_of(m.id): m.address for m in inventory.snapshot().of(name)}
        url = f"{site.bouncer_url(name, addresses[number])}/v2/models/{service.name}"
        what = Profiling(
            url,
            named=service.model,
            instance=rent.instance,
            calls=() if options.call is None else (options.call,),
            batches=rent.batches,
            precision=options.precision,
            seconds=rent.seconds,
            seed=options.seed,
            headers=key,
        )
        tell(f"measuring on {rent.instance}: up to {rent.seconds * len(rent.batches):.0f} s")
        measured = measure_in_time(what, left_s)
        for note in measured.notes:
            if note != OF_A_CLIENT:
                tell(f"{rent.instance}: {note}")
        return measured

    return RentedSearch(search, offers, cloud, clock, measure, look, f"profile-{time.time_ns()}")


def measure_in_time(what: Profiling, left_s: LeftS) -> Measured:
    """Measure a server as its client, in the time that is left. Raises BadInput, RentalOverdue.

    Over https any certificate is accepted, because bouncers sign their own.
    """
    model = find(what.model, what.search)
    if isinstance(model, ServerModel):
        model.headers = what.headers
        model.trust_any_certificate()
    within(model.load, left_s())
    call = what.calls[0] if what.calls else sample_call(model)
    if call is None:
        raise BadInput("declares neither inputs nor warmup: give a request", what.model)
    try:
        items, _ = (oip if call.protocol == "oip" else sagemaker).decode(call, model)
    except BadCall as bad:
        raise BadInput(bad.text, what.model) from None

    def ask(size: int) -> float:
        def timed() -> float:
            began_s = time.perf_counter()
            model.predict(items * size)
            return time.perf_counter() - began_s

        return within(timed, left_s())

    sampling = RoundsInTime(what.batches, precision=what.precision, seconds=what.seconds, seed=what.seed)
    sample_in_time(sampling, ask, left_s)
    return measured_of(what, sampling, notes=(OF_A_CLIENT, *sampling.notes()))


def sample_in_time(sampling: RoundsInTime, ask: Callable[[int], float], left_s: LeftS) -> None:
    """Ask for one item, then for the sizes that `sampling` chooses, until it is done or the time is over.

    `ask` returns how long a batch of this size took. Raises RentalOverdue if the time was over before the first timing,
    and the errors of `ask` for the first item.
    """
    # A bouncer without a profile assumes that an item takes minutes until it has served one.
    sampling.meet(ask(1))
    try:
        while (size := sampling.next_in(left_s())) is not None:
            try:
                sampling.record(size, [ask(size)])
            except RentalOverdue as overdue:
                if sampling.has(size):
                    log.warning("a batch of %d: %s; its earlier timings stay", size, overdue)
                    sampling.leave(size)
                else:
                    sampling.fail(size, str(overdue))
                raise
            except MarkError as error:
                sampling.fail(size, str(error))
    except RentalOverdue:
        sampling.settle()
        if not any(sampling.times_s.values()):
            raise
    else:
        sampling.settle()


def within(ask: Callable[[], _Answer], longest_s: float) -> _Answer:
    """Return the answer of `ask`. Raises RentalOverdue after `longest_s`, and the errors of `ask`.

    The client's own timeout applies to each read, so it would wait forever for an answer that trickles in.
    """
    answers: SimpleQueue[tuple[_Answer] | BaseException] = SimpleQueue()

    def run() -> None:
        try:
            answers.put((ask(),))
        except BaseException as error:
            answers.put(error)

    # A hanging thread is abandoned: it ends with the instance that it asks, and a daemon thread delays no exit.
    threading.Thread(target=run, daemon=True).start()
    try:
        answer = answers.get(timeout=longest_s)
    except Empty:
        raise RentalOverdue(f"no answer in the {longest_s:.0f} s that were left of its rental") from None
    if isinstance(answer, BaseException):
        raise answer
    return answer[0]


class _NoNotices:
    """The queue of notices belongs to the controller. An interrupted instance shows in the fleet."""

    def interruptions(self) -> Sequence[tuple[str, float, float]]:
        return ()


def _key(site: Site) -> dict[str, str]:
    """Return the headers that a bouncer demands of a client.

    Raises BadInput for a key file without a key that may infer.
    """
    if site.key_file is None:
        return {}
    key = key_with(INFER, read_keys(site.key_file), time.time())
    if key is None:
        raise BadInput("no key in it may infer", str(site.key_file))
    return {"authorization": f"Bearer {key}"}
