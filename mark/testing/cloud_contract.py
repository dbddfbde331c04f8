"""The contract of the port Cloud."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from mark.control.ports import Cloud
from mark.domain.errors import CapacityError, CloudError, NotFoundError
from mark.domain.fleet import Phase, ScheduledEvent


@dataclass(frozen=True, slots=True)
class CloudUnderTest:
    """A cloud without instances. `boot` lets time pass until all launched or resumed instances have booted.

    The offer `spot` has capacity for two instances, the others for enough; `burstable` can be stopped. `other_spot` is
    spot too. `schedule` announces an event of an instance (number, code, control seconds); None if the cloud has no
    events.
    """

    cloud: Cloud
    boot: Callable[[], None]
    on_demand: str  # Offer.name
    spot: str
    burstable: str
    other_spot: str
    schedule: Callable[[int, str, float], None] | None = None

    def phase(self, number: int) -> Phase | None:
        """Return the phase of an instance; None when it is gone."""
        return next((i.phase for i in self.cloud.fleet().instances if i.number == number), None)


class CloudContract:
    """Derive from this class and define a fixture `trial` that returns a `CloudUnderTest`, a new one for each test."""

    def test_a_launch_shows_in_the_fleet_in_order(self, trial: CloudUnderTest) -> None:
        """Numbers ascend and the snapshot is repeatable."""
        first, second = trial.cloud.launch(trial.on_demand, 2, "t").numbers
        assert first < second
        assert [i.number for i in trial.cloud.fleet().instances] == [first, second]
        assert trial.cloud.fleet() == trial.cloud.fleet()
        assert trial.phase(first) is Phase.PENDING

    def test_a_launch_is_safe_to_repeat(self, trial: CloudUnderTest) -> None:
        """One token gives one launch."""
        launched = trial.cloud.launch(trial.on_demand, 2, "t")
        assert trial.cloud.launch(trial.on_demand, 2, "t") == launched
        assert launched.refused is None
        assert len(trial.cloud.fleet().instances) == 2
        assert trial.cloud.launch(trial.on_demand, 2, "u") != launched

    def test_a_short_market_gives_what_it_has_then_refuses(self, trial: CloudUnderTest) -> None:
        """A launch gets fewer instances and the reason; the next raises CapacityError and starts nothing."""
        launched = trial.cloud.launch(trial.spot, 3, "t")
        assert len(launched.numbers) == 2
        assert launched.refused is not None
        assert str(launched.refused)
        with pytest.raises(CapacityError):
            trial.cloud.launch(trial.spot, 1, "u")
        assert len(trial.cloud.fleet().instances) == 2

    def test_an_alternative_is_started_where_the_first_is_short(self, trial: CloudUnderTest) -> None:
        """Each instance shows its true offer; a repeated launch gives the same numbers."""
        trial.cloud.launch(trial.spot, 2, "t", alternatives=(trial.other_spot,))
        assert [i.offer for i in trial.cloud.fleet().instances] == [trial.spot] * 2
        (other,) = trial.cloud.launch(trial.spot, 1, "u", alternatives=(trial.other_spot,)).numbers
        assert trial.cloud.launch(trial.spot, 1, "u", alternatives=(trial.other_spot,)).numbers == (other,)
        assert {i.number: i.offer for i in trial.cloud.fleet().instances}[other] == trial.other_spot
        trial.boot()
        assert {i.number: i.offer for i in trial.cloud.fleet().instances}[other] == trial.other_spot

    def test_an_instance_boots_drains_and_ends(self, trial: CloudUnderTest) -> None:
        """Draining and terminating may be repeated."""
        (number,) = trial.cloud.launch(trial.on_demand, 1, "t").numbers
        trial.boot()
        assert trial.phase(number) is Phase.READY
        trial.cloud.drain(number)
        trial.cloud.drain(number)
        assert trial.phase(number) is Phase.DRAINING
        assert trial.cloud.fleet().instances[0].idle
        trial.cloud.terminate(number)
        trial.cloud.terminate(number)
        assert trial.phase(number) is None

    def test_a_standby_boots_stops_resumes_and_stops_again(self, trial: CloudUnderTest) -> None:
        """A resumed standby serves, until it is drained and stopped."""
        (number,) = trial.cloud.launch(trial.burstable, 1, "t", standby=True).numbers
        trial.boot()
        assert trial.phase(number) is Phase.STOPPED
        assert [i.number for i in trial.cloud.fleet().standbys()] == [number]
        trial.cloud.resume(number)
        assert trial.phase(number) is Phase.PENDING
        trial.boot()
        assert trial.phase(number) is Phase.READY
        trial.cloud.drain(number)
        trial.cloud.stop(number)
        trial.cloud.stop(number)
        assert trial.phase(number) is Phase.STOPPED
        assert not trial.cloud.fleet().instances[0].idle

    def test_what_served_is_stopped_and_resumed_under_its_number(self, trial: CloudUnderTest) -> None:
        """In the warm pool a stopped instance is not a standby; resumed, it serves as before."""
        (number,) = trial.cloud.launch(trial.on_demand, 1, "t").numbers
        trial.boot()
        assert not trial.cloud.fleet().instances[0].resumed
        for _ in range(2):
            trial.cloud.drain(number)
            trial.cloud.stop(number)
            assert [i.number for i in trial.cloud.fleet().pooled()] == [number]
            assert not trial.cloud.fleet().standbys()
            trial.boot()  # EC2 does not start an instance that is still stopping
            trial.cloud.resume(number)
            assert trial.phase(number) is Phase.PENDING
            assert trial.cloud.fleet().instances[0].resumed
            trial.boot()
            assert trial.phase(number) is Phase.READY
        trial.cloud.drain(number)
        trial.cloud.stop(number)
        trial.cloud.terminate(number)
        assert trial.phase(number) is None

    @pytest.mark.parametrize("verb", ["drain", "stop", "resume", "terminate"])
    def test_an_unknown_number_is_not_found(self, trial: CloudUnderTest, verb: str) -> None:
        """A number that was never launched raises NotFoundError in every call."""
        with pytest.raises(NotFoundError):
            getattr(trial.cloud, verb)(99)

    @pytest.mark.parametrize("verb", ["drain", "stop", "resume"])
    def test_a_terminated_instance_is_not_found(self, trial: CloudUnderTest, verb: str) -> None:
        """Only terminating it again is allowed."""
        (number,) = trial.cloud.launch(trial.on_demand, 1, "t").numbers
        trial.cloud.terminate(number)
        with pytest.raises(NotFoundError):
            getattr(trial.cloud, verb)(number)

    @pytest.mark.parametrize("verb", ["stop", "resume"])
    def test_an_illegal_transition_raises_and_changes_nothing(self, trial: CloudUnderTest, verb: str) -> None:
        """A ready instance can be neither stopped nor resumed."""
        (number,) = trial.cloud.launch(trial.on_demand, 1, "t").numbers
        trial.boot()
        before = trial.cloud.fleet()
        with pytest.raises(CloudError, match="cannot go from ready"):
            getattr(trial.cloud, verb)(number)
        assert trial.cloud.fleet() == before

    def test_what_is_scheduled_shows_and_changes_nothing_else(self, trial: CloudUnderTest) -> None:
        """The event shows on its own instance only, which continues to serve, without a notice."""
        numbers = trial.cloud.launch(trial.on_demand, 2, "t").numbers
        trial.boot()
        before = trial.cloud.fleet()
        assert [i.event for i in before.instances] == [None, None]
        if trial.schedule is None:
            return
        trial.schedule(numbers[1], "instance-retirement", 1e6)
        event = ScheduledEvent("instance-retirement", 1e6)
        first, second = before.instances
        assert trial.cloud.fleet().instances == (first, replace(second, event=event))
        assert trial.cloud.notices() == ()
        trial.cloud.drain(numbers[1])
        trial.cloud.stop(numbers[1])
        assert trial.phase(numbers[1]) is Phase.STOPPED

    def test_notices_are_empty_when_nothing_is_interrupted(self, trial: CloudUnderTest) -> None:
        """The answer is empty, repeatedly."""
        trial.cloud.launch(trial.on_demand, 1, "t")
        assert trial.cloud.notices() == trial.cloud.notices() == ()
