"""The refusal matrix: whatever EC2 answers to a launch, what else can be bought is bought, and nothing is hammered.

The real controller with `mark`'s planner, in virtual time, before a cloud that answers launches of some offers with an
error code of EC2. The codes are those of the EC2 API reference that a launch by an instant fleet can meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from mark_infra.aws.gate import launch_refusal, reaction, scope_of

from mark.control.controller import Controller
from mark.control.memory_store import MemoryStore
from mark.control.ports import Launched
from mark.domain.errors import CloudError, RefusalScope
from mark.domain.fleet import Phase
from mark.domain.offer import Delay, Market, Offer
from mark.domain.service import ResolvedService
from mark.ec2.refusal import quota_of, refused_with
from mark.forecasting.registry import make_predictor
from mark.forecasting.supervised import Supervised
from mark.planning.policies.expected_cost import ExpectedCostPolicy
from mark.planning.port import Policy
from mark.testing.fakes import FakeCloud, FakeFunctions, FakeTelemetry, ManualClock
from tests.planning.build import load, resolved, sold

CODES = (
    *("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity"),
    *("InsufficientFreeAddressesInSubnet", "InsufficientCapacity", "UnfulfillableCapacity", "SpotMaxPriceTooLow"),
    *("MaxSpotInstanceCountExceeded", "MaxSpotFleetRequestCountExceeded", "VcpuLimitExceeded"),
    *("InstanceLimitExceeded", "VolumeLimitExceeded", "MaxIOPSLimitExceeded", "AddressLimitExceeded"),
    *("UnauthorizedOperation", "AuthFailure.ServiceLinkedRoleCreationNotPermitted", "OptInRequired", "Blocked"),
    *("PendingVerification", "InvalidFleetConfiguration", "InvalidParameterValue", "InvalidParameterCombination"),
    *("InvalidParameter", "MissingParameter", "Unsupported", "UnsupportedOperation", "InvalidInput"),
    *("InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidSubnetID.NotFound", "InvalidGroup.NotFound"),
    *("InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateId.VersionNotFound", "InvalidKeyPair.NotFound"),
    *("InvalidIamInstanceProfileArn.NotFound", "InvalidSnapshot.NotFound", "EncryptedVolumesNotSupported"),
    *(
        "InvalidBlockDeviceMapping",
        "InvalidSpotFleetRequestConfig",
        "InvalidAvailabilityZone",
        "InvalidUserData.Malformed",
    ),
)
ONE_TYPE = (sold("c5.large", 0.085), sold("c5.large", 0.034, Market.SPOT, "a"))
FIVE_TYPES = tuple(
    offer
    for k, name in enumerate(("c5.large", "c6i.large", "m5.large", "c7i.large", "c8g.large"))
    for offer in (sold(name, 0.085 + 0.001 * k), sold(name, 0.034 + 0.001 * k, Market.SPOT, "a"))
)
MIXED = (*ONE_TYPE, sold("g4dn.xlarge", 0.2), sold("g4dn.xlarge", 0.08, Market.SPOT, "a"))
SETS = {"one type": ONE_TYPE, "five types": FIVE_TYPES, "mixed GPU": MIXED}
TICKS = 5


class RefusingCloud(FakeCloud):
    """EC2 as far as it answers launches: of what `refuses`, with this code."""

    def __init__(self, clock: ManualClock, code: str, refuses: Callable[[Offer], bool], of: ResolvedService) -> None:
        super().__init__(clock)
        self._code, self._refuses = code, refuses
        self._offers = {offer.name: offer for offer in of.offers}
        self.refused: Counter[tuple[str, int]] = Counter()  # by offer and minute

    def launch(
        self,
        offer: str,
        count: int,
        token: str,
        *,
        standby: bool = False,
        release: str = "",
        alternatives: tuple[str, ...] = (),
    ) -> Launched:
        allowed = []
        for name in (offer, *alternatives):
            if self._refuses(self._offers[name]):
                self.refused[name, int(self.clock.t_s // 60.0)] += 1
            else:
                allowed.append(name)
        if not allowed:
            raise answered(self._code)
        first, *others = allowed
        return super().launch(first, count, token, standby=standby, release=release, alternatives=tuple(others))


def answered(code: str, status: int = 400) -> CloudError:
    """As the gate raises it."""
    response = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = reaction(code, "no")
    error.__cause__ = ClientError(response, "CreateFleet")
    return launch_refusal(error)


class World:
    """A controller that begins with nothing; 40 requests/s come, 10 an instance."""

    def __init__(self, offers: tuple[Offer, ...], code: str, refuses: Callable[[Offer], bool]) -> None:
        quick = tuple(replace(offer, boot=Delay(50.0, 60.0)) for offer in offers)
        of = resolved(*quick, latencies_ms={offer.instance: 100.0 for offer in quick}, function_ms=None)
        self.clock, self.store = ManualClock(), MemoryStore()
        self.cloud = RefusingCloud(self.clock, code, refuses, of)
        telemetry = FakeTelemetry()
        telemetry.rps = 40.0
        policy = Policy(ExpectedCostPolicy("mark", of), of, bouncers=True)
        predictor = Supervised(make_predictor("seasonal-naive", 0, 60.0))
        predictor.fit(load(*[40.0] * 120))
        self.controller = Controller(
            policy, predictor, self.cloud, FakeFunctions(), self.clock, self.store, telemetry, seed=0
        )

    def run(self, ticks: int = TICKS) -> None:
        for _ in range(ticks):
            self.controller.fast()
            self.controller.tick()
            for _ in range(11):
                self.clock.t_s += 5.0
                self.controller.fast()
            self.clock.t_s += 5.0
            self.cloud.boot()

    def serving(self) -> int:
        return sum(i.phase is Phase.READY for i in self.cloud.instances.values())


def of_spot(offer: Offer) -> bool:
    return offer.market is Market.SPOT


def on_demand(offer: Offer) -> bool:
    return offer.market is not Market.SPOT


def of_the_first_type(offer: Offer) -> bool:
    return offer.instance == "c5.large"


REFUSED = {"spot": of_spot, "on demand": on_demand, "the first type": of_the_first_type}


@pytest.mark.parametrize("code", CODES)
def test_something_serves_wherever_anything_can_be_bought(code: str) -> None:
    """Six of nine: one type alone is all there is of the first, and of it nothing is to be had."""
    for offers in SETS.values():
        for refuses in REFUSED.values():
            world = World(offers, code, refuses)
            world.run()
            refused = world.cloud.refused
            assert max(refused.values(), default=0) <= 2, "calls of a pool in a minute"
            journal = [outcome for _, _, outcome in world.store.journal]
            assert any(code in outcome for outcome in journal) == bool(refused), "the reason"
            can = any(not refuses(offer) for offer in offers)
            assert can == (world.serving() >= 4), "as many as it takes"


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "InternalError", "Unavailable", "ExpiredToken"])
def test_what_says_nothing_of_the_launch_is_asked_again(code: str) -> None:
    """Under the same token, and nothing else is bought for it."""
    refusing = True
    world = World(ONE_TYPE, code, lambda offer: refusing)
    world.run(2)
    assert world.serving() == 0
    refusing = False
    world.run(6)
    assert world.serving() >= 4
    assert len(world.cloud.instances) <= 6, "nothing twice"


@pytest.mark.parametrize("status", [500, 503])
def test_a_failure_of_ec2_leaves_the_launch_open(status: int) -> None:
    assert type(answered("InvalidParameterValue", status)) is CloudError


def test_what_is_refused_with_an_offer() -> None:
    first, spot = MIXED[0], MIXED[1]
    names = [offer.name for offer in MIXED]
    assert refused_with(first, RefusalScope.OFFER, MIXED) == (first.name,)
    assert refused_with(first, RefusalScope.TYPE, MIXED) == (first.name, spot.name)
    assert refused_with(first, RefusalScope.QUOTA, MIXED) == (first.name,)
    assert refused_with(spot, RefusalScope.MARKET, MIXED) == (spot.name, names[3])
    assert len(refused_with(FIVE_TYPES[0], RefusalScope.QUOTA, FIVE_TYPES)) == 5


@pytest.mark.parametrize(
    ("instance", "quota"),
    [
        ("c5.large", "standard"),
        ("t3.micro", "standard"),
        ("im4gn.large", "standard"),
        ("hpc7a.12xlarge", "hpc"),
        ("inf2.xlarge", "inf"),
        ("trn1.2xlarge", "trn"),
        ("dl1.24xlarge", "dl"),
        ("g6.xlarge", "g and vt"),
        ("vt1.3xlarge", "g and vt"),
        ("gr6.4xlarge", "g and vt"),
        ("p3.2xlarge", "p"),
        ("x2idn.16xlarge", "x"),
        ("f1.2xlarge", "f"),
        ("u-6tb1.metal", "u"),
    ],
)
def test_families_share_quotas(instance: str, quota: str) -> None:
    assert quota_of(sold(instance, 1.0)) == (quota, False)
    assert quota_of(sold(instance, 1.0, Market.SPOT, "a")) == (quota, True)


def test_p5_has_a_quota_of_its_own_on_spot() -> None:
    assert quota_of(sold("p5.48xlarge", 1.0)) == ("p", False)
    assert quota_of(sold("p5.48xlarge", 1.0, Market.SPOT, "a")) == ("p5", True)


def test_every_code_has_a_scope() -> None:
    """Rights and counts are of a market; most answers are of one pool."""
    scopes = Counter(scope_of(code) for code in CODES)
    assert scopes[RefusalScope.QUOTA] == 2
    assert scopes[RefusalScope.OFFER] > len(CODES) / 2
    assert set(scopes) == set(RefusalScope)
