"""The refusal matrix: whatever EC2 answers to a launch, the controller buys another offer and does not hammer EC2.

The real controller runs with `mark`'s planner, in virtual time. Its cloud answers launches of some offers with an error
code of EC2, gives only a part, or accepts a launch and ends its instances before they run.

EC2's service model (botocore's) lists no errors, neither of the whole nor of a call. The codes below are picked by hand
from the page "Error codes for the Amazon EC2 API" of the EC2 API reference: those that a launch by an instant fleet can
meet. The reasons of an end are those that the model lists of `StateReason`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from mark_infra.aws.gate import fleet_refusal, launch_refusal, reaction, scope_of, scope_of_end

from mark.cloud.ec2.refusal import quota_of, refused_with
from mark.control.controller import Controller
from mark.control.memory_store import MemoryStore
from mark.control.ports import Launched
from mark.domain.errors import CapacityError, CloudError, RefusalScope, ThrottledError
from mark.domain.fleet import Phase
from mark.domain.offer import Delay, Market, Offer
from mark.domain.service import ResolvedService
from mark.planning.planner import Policy
from mark.planning.policies.expected_cost import ExpectedCostPolicy
from mark.testing.fakes import FakeCloud, FakeFunctions, FakeTelemetry, ManualClock
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.forecast.supervised import Supervised
from tests.planning.build import load, resolved, sold
from tests.samples import first as first_of

CODES = (
    *("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity"),
    *("InsufficientFreeAddressesInSubnet", "InsufficientCapacity", "UnfulfillableCapacity", "SpotMaxPriceTooLow"),
    *("MaxSpotInstanceCountExceeded", "MaxSpotFleetRequestCountExceeded", "VcpuLimitExceeded"),
    *("InstanceLimitExceeded", "VolumeLimitExceeded", "MaxIOPSLimitExceeded", "AddressLimitExceeded"),
    *("UnauthorizedOperation", "AuthFailure.ServiceLinkedRoleCreationNotPermitted", "OptInRequired", "Blocked"),
    *("PendingVerification", "InvalidFleetConfiguration", "InvalidParameterValue", "InvalidParameterCombination"),
    *("InvalidParameter", "Unsupported", "UnsupportedOperation", "InvalidInput"),
    *("InvalidSubnetID.NotFound", "EncryptedVolumesNotSupported", "InvalidSpotFleetRequestConfig"),
    "InvalidAvailabilityZone",
)
# One code of each scope is enough, because the gate passes on only a code's scope and its text.
ONE_OF_EACH_SCOPE = (
    *("InsufficientInstanceCapacity", "InvalidParameterCombination", "VcpuLimitExceeded"),
    "MaxSpotInstanceCountExceeded",
)
OTHERS = tuple(code for code in CODES if code not in ONE_OF_EACH_SCOPE)
# Parts that every launch shares: EC2 refuses any other offer just the same.
SHARED_CODES = (
    *("InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidAMIID.Malformed", "InvalidSnapshot.NotFound"),
    *(
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.VersionNotFound",
        "InvalidLaunchTemplateId.Malformed",
    ),
    *("InvalidLaunchTemplateName.NotFoundException", "InvalidKeyPair.NotFound", "InvalidUserData.Malformed"),
    *("InvalidIamInstanceProfileArn.NotFound", "InvalidIAMInstanceProfileArn.Malformed", "InvalidGroup.NotFound"),
    *("InvalidSecurityGroupID.NotFound", "InvalidSecurityGroupId.Malformed", "InvalidVpcID.NotFound"),
    *("InvalidBlockDeviceMapping", "MissingParameter"),
)
# The message of an InvalidParameterValue about a missing profile.
PROFILE = "Value (mark-bouncer) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
REASONS = ("Client.VolumeLimitExceeded", "Server.InsufficientInstanceCapacity", "Server.InternalError")
SHARED_REASONS = ("Client.InternalError", "Client.InvalidSnapshot.NotFound")
# A missing image, another missing part, an end at launch.
ONE_OF_EACH_WAY = ("InvalidAMIID.NotFound", "InvalidGroup.NotFound", "Client.InternalError")
OTHERS_SHARED = (*(code for code in (*SHARED_CODES, *SHARED_REASONS) if code not in ONE_OF_EACH_WAY), PROFILE)
ONE_TYPE = (sold("c5.large", 0.085), sold("c5.large", 0.034, Market.SPOT, "a"))
FIVE_TYPES = tuple(
    offer
    for k, name in enumerate(("c5.large", "c6i.large", "m5.large", "c7i.large", "c8g.large"))
    for offer in (sold(name, 0.085 + 0.001 * k), sold(name, 0.034 + 0.001 * k, Market.SPOT, "a"))
)
MIXED = (*ONE_TYPE, sold("g4dn.xlarge", 0.2), sold("g4dn.xlarge", 0.08, Market.SPOT, "a"))
SETS = {"one type": ONE_TYPE, "five types": FIVE_TYPES, "mixed GPU": MIXED}
TICKS = 5


class Refuses(StrEnum):
    """The ways in which EC2 refuses."""

    AT_ONCE = "at once"
    IN_PART = "all but one"
    AT_LAUNCH = "once it was accepted"


class RefusingCloud(FakeCloud):
    """An EC2 that answers launches: offers that match `refuses` get this error in this way."""

    def __init__(
        self, clock: ManualClock, error: CloudError, refuses: Callable[[Offer], bool], of: ResolvedService, how: Refuses
    ) -> None:
        super().__init__(clock)
        self._error, self._refuses, self._how = error, refuses, how
        self._offers = {offer.name: offer for offer in of.offers}
        self.refused: Counter[tuple[str, int]] = Counter()  # by offer and minute
        self.asked_s: list[float] = []

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
        self.asked_s.append(self.clock.t_s)
        allowed, refused = [], []
        for name in (offer, *alternatives):
            if self._refuses(self._offers[name]):
                self.refused[name, int(self.clock.t_s // 60.0)] += 1
                refused.append(name)
            else:
                allowed.append(name)
        self.left, self.ends, self.why = {}, {}, None
        if isinstance(self._error, CapacityError) and self._how is not Refuses.AT_ONCE:
            if self._how is Refuses.IN_PART:
                self.left, self.why = dict.fromkeys(refused, 1), self._error
            else:
                self.ends = dict.fromkeys(refused, self._error)
            allowed = [*allowed, *refused]
        if not allowed:
            raise self._error
        first, *others = allowed
        return super().launch(first, count, token, standby=standby, release=release, alternatives=tuple(others))


def answered(code: str, status: int = 400, message: str = "no") -> CloudError:
    """Return the error as the gate raises it."""
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = reaction(code, message)
    error.__cause__ = ClientError(response, "CreateFleet")
    return launch_refusal(error)


def said_of_the_end(reason: str) -> CapacityError:
    """Return the port's view of instances that EC2 ended at launch."""
    scope = scope_of_end(reason)
    assert scope is not None
    return CapacityError(f"{reason}: no", scope)


class World:
    """A controller that starts without instances; 40 requests/s come, and an instance takes 10."""

    def __init__(
        self,
        offers: tuple[Offer, ...],
        error: CloudError,
        refuses: Callable[[Offer], bool],
        how: Refuses = Refuses.AT_ONCE,
    ) -> None:
        quick = tuple(replace(offer, boot=Delay(50.0, 60.0)) for offer in offers)
        of = resolved(*quick, latencies_ms={offer.instance: 100.0 for offer in quick}, function_ms=None)
        self.clock, self.store = ManualClock(), MemoryStore()
        self.cloud = RefusingCloud(self.clock, error, refuses, of, how)
        telemetry = FakeTelemetry()
        telemetry.rps = 40.0
        policy = Policy(ExpectedCostPolicy("mark", of), of, bouncers=True)
        predictor = Supervised(make_predictor("seasonal-naive", 0, 60.0))
        predictor.fit(load(*[40.0] * 120))
        self.controller = Controller(policy, predictor, self.cloud, FakeFunctions(), self.clock, self.store, telemetry)

    def run(self, ticks: int = TICKS) -> None:
        for _ in range(ticks):
            self.controller.fast()
            self.controller.tick()
            for _ in range(11):
                self.clock.t_s += 5.0
                self.controller.fast()
            self.clock.t_s += 5.0
            self.cloud.boot()

    def journal(self) -> list[str]:
        return [outcome for _, _, outcome in self.store.journal]

    def serving(self) -> int:
        return sum(i.phase is Phase.READY for i in self.cloud.instances.values())


def of_spot(offer: Offer) -> bool:
    return offer.market is Market.SPOT


def on_demand(offer: Offer) -> bool:
    return offer.market is not Market.SPOT


def of_the_first_type(offer: Offer) -> bool:
    return offer.instance == "c5.large"


REFUSED = {"spot": of_spot, "on demand": on_demand, "the first type": of_the_first_type}


@pytest.mark.parametrize("code", first_of(len(ONE_OF_EACH_SCOPE), [*ONE_OF_EACH_SCOPE, *OTHERS], slow=0))
def test_something_serves_wherever_anything_can_be_bought(code: str) -> None:
    """Eight of nine cases can: the first set has one type only, and one case refuses that type."""
    for offers in SETS.values():
        for refuses in REFUSED.values():
            world = World(offers, answered(code), refuses)
            world.run()
            refused = world.cloud.refused
            assert max(refused.values(), default=0) <= 2, "calls of a pool in a minute"
            assert any(code in outcome for outcome in world.journal()) == bool(refused), "the reason"
            can = any(not refuses(offer) for offer in offers)
            assert can == (world.serving() >= 4), "as many as it takes"


@pytest.mark.parametrize("code", ONE_OF_EACH_SCOPE)
@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("offers", SETS)
def test_a_launchs_missing_part_is_bought_elsewhere_at_once(offers: str, refused: str, code: str) -> None:
    """Another offer is bought in the same minute, and the journal has the reason beside the launched instances."""
    refuses = REFUSED[refused]
    world = World(SETS[offers], answered(code), refuses, Refuses.IN_PART)
    world.run(1)
    assert max(world.cloud.refused.values(), default=0) <= 2, "calls of a pool in a minute"
    if world.cloud.refused:
        assert any(f": {code}: no" in outcome for outcome in world.journal() if outcome.startswith("the market had 1"))
    if any(not refuses(offer) for offer in SETS[offers]):
        assert len(world.cloud.instances) >= 4


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("offers", SETS)
def test_what_ends_at_launch_is_bought_elsewhere(offers: str, refused: str, reason: str) -> None:
    """It counts like a refusal at the call, and never as a failed boot."""
    refuses = REFUSED[refused]
    world = World(SETS[offers], said_of_the_end(reason), refuses, Refuses.AT_LAUNCH)
    world.run()
    assert max(world.cloud.refused.values(), default=0) <= 2, "calls of a pool in a minute"
    assert any(f"ran: {reason}: no" in outcome for outcome in world.journal()) == bool(world.cloud.ended)
    assert not any(one.failed for one in world.controller.state.boots.values())
    assert any(not refuses(offer) for offer in SETS[offers]) == (world.serving() >= 4)


@pytest.mark.parametrize("markets", ["both", "on demand", "spot"])
@pytest.mark.parametrize("offers", SETS)
@pytest.mark.parametrize("code", first_of(len(ONE_OF_EACH_WAY), [*ONE_OF_EACH_WAY, *OTHERS_SHARED], slow=0))
def test_what_launches_share_is_requested_twice_a_minute_at_most(code: str, offers: str, markets: str) -> None:
    """The limit is over all offers. The journal has the reason, no offer counts as sold out, and the service serves
    once the shared part is repaired."""
    sold = tuple(o for o in SETS[offers] if markets == "both" or (o.market is Market.SPOT) == (markets == "spot"))
    refusing = True
    at_launch = code in SHARED_REASONS
    if at_launch:
        error: CloudError = said_of_the_end(code)
    else:
        error = answered("InvalidParameterValue", message=PROFILE) if code == PROFILE else answered(code)
    world = World(sold, error, lambda offer: refusing, Refuses.AT_LAUNCH if at_launch else Refuses.AT_ONCE)
    world.run(8)
    asked_s = world.cloud.asked_s
    assert all(later - earlier >= 60.0 for earlier, later in zip(asked_s, asked_s[2:], strict=False))
    assert len(asked_s) >= 3
    assert any(code in outcome for outcome in world.journal())
    assert not any(known.refusals for known in world.controller.state.beliefs.values())
    assert not world.controller.state.boots
    refusing = False
    world.run(7)
    assert world.serving() >= 4
    assert world.controller.state.held == {}


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "InternalError", "Unavailable", "ExpiredToken"])
def test_what_says_nothing_of_the_launch_is_asked_again(code: str) -> None:
    """The repetition has the same token, and no other offer is bought instead."""
    refusing = True
    world = World(ONE_TYPE, answered(code), lambda offer: refusing)
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
    """Rights and counts belong to a market; most answers concern one pool."""
    scopes = Counter(scope_of(code) for code in CODES)
    assert scopes[RefusalScope.QUOTA] == 2
    assert scopes[RefusalScope.OFFER] > len(CODES) / 2
    assert {*scopes, RefusalScope.EVERYTHING} == set(RefusalScope)
    assert RefusalScope.EVERYTHING not in scopes
    assert {scope_of(code) for code in SHARED_CODES} == {RefusalScope.EVERYTHING}
    assert {scope_of_end(reason) for reason in SHARED_REASONS} == {RefusalScope.EVERYTHING}
    assert scope_of_end("Client.VolumeLimitExceeded") is RefusalScope.MARKET
    assert scope_of_end("Server.InternalError") is RefusalScope.OFFER


def test_a_missing_instance_profile_is_told_by_its_message() -> None:
    """The code alone may concern one type, for example its architecture."""
    assert scope_of("InvalidParameterValue", PROFILE) is RefusalScope.EVERYTHING
    assert scope_of("InvalidParameterValue", "The architecture 'arm64' does not match") is RefusalScope.OFFER
    said = [("UnfulfillableCapacity", "Unable to fulfill capacity"), ("InvalidParameterValue", PROFILE)]
    refused = fleet_refusal([{"ErrorCode": code, "ErrorMessage": message} for code, message in said], "nothing said")
    assert isinstance(refused, CapacityError)
    assert refused.scope is RefusalScope.EVERYTHING
    assert PROFILE in str(refused)


def told(code: str, instance: str = "c5.large") -> dict[str, object]:
    """Return an error of one pool in the answer to CreateFleet."""
    pool = {"Overrides": {"InstanceType": instance}}
    return {"ErrorCode": code, "ErrorMessage": "no", "LaunchTemplateAndOverrides": pool}


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "Throttling", "ThrottlingException", "EC2ThrottledException"])
def test_a_throttled_pool_refuses_nothing(code: str) -> None:
    first, full = ONE_TYPE[0], "InsufficientInstanceCapacity"
    assert isinstance(fleet_refusal([told(code), told(code)], "none", first), ThrottledError)
    assert isinstance(fleet_refusal([told(code), told(full, "m5.large")], "none", first), ThrottledError)
    for errors in ([told(code), told(full)], [told(full), told(code, "m5.large")]):
        refused = fleet_refusal(errors, "none", first)
        assert isinstance(refused, CapacityError)
        assert full in str(refused)


@pytest.mark.parametrize(
    ("code", "instance", "scope"),
    [
        # Errors about the account, whichever pool met them.
        ("PendingVerification", "g5.xlarge", RefusalScope.MARKET),
        ("Blocked", "m5.large", RefusalScope.MARKET),
        ("VcpuLimitExceeded", "m5.24xlarge", RefusalScope.OFFER),  # a smaller type may have room
        ("InvalidParameterCombination", "m5.large", RefusalScope.OFFER),  # another type may fit
        ("InvalidAMIID.NotFound", "m5.large", RefusalScope.EVERYTHING),
    ],
)
def test_what_the_account_may_not_do_holds_for_every_type(code: str, instance: str, scope: RefusalScope) -> None:
    refused = fleet_refusal([told("InsufficientInstanceCapacity"), told(code, instance)], "none", ONE_TYPE[0])
    assert isinstance(refused, CapacityError)
    assert refused.scope is scope


def test_without_a_reason_of_its_own_the_others_count() -> None:
    refused = fleet_refusal([told("InvalidParameterCombination", "m5.large")], "none", ONE_TYPE[0])
    assert isinstance(refused, CapacityError)
    assert refused.scope is RefusalScope.TYPE
    assert str(fleet_refusal([], "no reason was given", ONE_TYPE[0])) == "no reason was given"


@pytest.mark.parametrize(
    ("code", "gone"),
    [
        ("InvalidAMIID.NotFound", True),
        ("InvalidLaunchTemplateId.VersionNotFound", True),
        ("InvalidLaunchTemplateId.NotFound", False),  # all releases share the template
        ("InvalidGroup.NotFound", False),
        ("InsufficientInstanceCapacity", False),
    ],
)
def test_a_gone_image_is_a_matter_of_its_release(code: str, gone: bool) -> None:
    for refused in (answered(code), fleet_refusal([{"ErrorCode": code, "ErrorMessage": "no"}], "nothing said")):
        assert isinstance(refused, CapacityError)
        assert refused.gone is gone
