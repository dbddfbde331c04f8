"""The gate to AWS: every failure becomes a CloudError with its reaction, and no failure takes longer than allowed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError, ReadTimeoutError
from mark_infra.aws.gate import PATIENT_S, READ_S, Gate, computing, reaction, within
from mark_infra.aws.site import Site

from mark.domain.errors import (
    CapacityError,
    CloudError,
    DeniedError,
    LimitError,
    LostLease,
    NotFoundError,
    ThrottledError,
)
from tests.infra.conftest import MotoServer
from tests.infra.fault_proxy import Fault, fault_proxy

SITE = Site("mark", "us-east-1", "sqlite:none")


class Service:
    """A stand-in for a client's method: it takes its time, then fails or answers as the test says."""

    def __init__(self, takes_s: float = 0.0, *errors: Exception) -> None:
        self.t_s, self.takes_s, self.errors, self.calls = 0.0, takes_s, list(errors), 0

    def monotonic(self) -> float:
        return self.t_s

    def __call__(self, **arguments: Any) -> dict[str, Any]:
        self.calls += 1
        self.t_s += self.takes_s
        if self.errors:
            raise self.errors.pop(0)
        return arguments


def refused(code: str, status: int = 400) -> ClientError:
    said = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(said, "Anything")


SILENCE = ReadTimeoutError(endpoint_url="http://x")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", CapacityError),
        ("InsufficientFreeAddressesInSubnet", CapacityError),
        ("SpotMaxPriceTooLow", CapacityError),
        ("Unsupported", CapacityError),
        ("VcpuLimitExceeded", LimitError),
        ("InstanceLimitExceeded", LimitError),
        ("MaxSpotInstanceCountExceeded", LimitError),
        ("ServiceQuotaExceededException", LimitError),
        ("RequestLimitExceeded", ThrottledError),
        ("Throttling", ThrottledError),
        ("TooManyRequestsException", ThrottledError),
        ("InvalidInstanceID.NotFound", NotFoundError),
        ("InvalidLaunchTemplateId.NotFoundException", NotFoundError),
        ("TargetGroupNotFound", NotFoundError),
        ("ResourceNotFoundException", NotFoundError),
        ("AWS.SimpleQueueService.NonExistentQueue", NotFoundError),
        ("UnauthorizedOperation", DeniedError),
        ("AccessDenied", DeniedError),
        ("ExpiredToken", DeniedError),
        ("IncorrectInstanceState", CloudError),
        ("", CloudError),
    ],
)
def test_codes_become_reactions(code: str, kind: type[CloudError]) -> None:
    """Throttling is not a limit, although AWS calls it one."""
    found = reaction(code, "why")
    assert type(found) is kind
    assert str(found) == f"{code}: why"
    with pytest.raises(kind):
        Gate(SITE).call(Service(0.0, refused(code)))


def test_other_failures_of_the_sdk_are_cloud_errors() -> None:
    gate = Gate(SITE)
    with pytest.raises(CloudError, match="ReadTimeoutError"):
        gate.call(Service(0.0, SILENCE))
    with pytest.raises(DeniedError):
        gate.call(Service(0.0, NoCredentialsError()))
    assert gate.call(Service(), a=1) == {"a": 1}


def test_credentials_are_looked_for_again_once_there_were_none() -> None:
    """A client that was made without credentials would never find any."""
    gate = Gate(SITE)
    first = gate.client("sts")
    assert gate.client("sts") is first
    with pytest.raises(DeniedError):
        gate.call(Service(0.0, NoCredentialsError()))
    assert gate.client("sts") is not first


def test_a_fault_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        Gate(SITE).call(Service(0.0, ZeroDivisionError()))


def test_a_cloud_that_hangs_is_left_alone_for_a_while() -> None:
    """After 20 s of failing calls the gate stops until some time has come back; answered calls cost nothing."""
    hung = Service(9.0, *[SILENCE] * 4)
    gate = Gate(SITE, monotonic=hung.monotonic)
    for _ in range(3):
        with pytest.raises(CloudError):
            gate.call(hung)
    with pytest.raises(ThrottledError, match="left alone"):
        gate.call(hung)
    assert (hung.calls, hung.t_s) == (3, 27.0)
    hung.t_s += 60.0
    with pytest.raises(CloudError, match="ReadTimeoutError"):
        gate.call(hung)
    hung.t_s += 60.0
    for _ in range(10):
        assert gate.call(hung) == {}


def test_launches_and_other_calls_cost_each_other_nothing() -> None:
    """Four fleets without an answer in time spend no budget. An error of AWS's own does, for further launches only."""
    slow = Service(20.0, *[SILENCE] * 4, refused("InternalError", 500))
    gate = Gate(SITE, monotonic=slow.monotonic)
    for _ in range(4):
        with pytest.raises(CloudError, match="ReadTimeoutError"):
            gate.call(slow, patient=True)
    assert gate.call(Service()) == {}
    with pytest.raises(CloudError, match="InternalError"):
        gate.call(slow, patient=True)
    with pytest.raises(ThrottledError, match="left alone"):
        gate.call(slow, patient=True)
    assert gate.call(Service()) == {}


def test_a_patient_client_waits_longer_and_asks_twice() -> None:
    usual, patient = (Gate(SITE).client("ec2", patient=more).meta.config for more in (False, True))
    assert (usual.read_timeout, patient.read_timeout) == (READ_S, PATIENT_S)
    assert (usual.retries["total_max_attempts"], patient.retries["total_max_attempts"]) == (3, 2)


def test_time_comes_back_by_one_clock_for_all_threads() -> None:
    """With a clock of waits for each thread, a thread that has waited long takes no time from the others."""
    hung, now_s = Service(9.0, *[SILENCE] * 2), 0.0
    gate = Gate(SITE, monotonic=hung.monotonic, recovery_clock=lambda: now_s)
    for _ in range(2):
        with pytest.raises(CloudError, match="ReadTimeoutError"):
            gate.call(hung)
    for thread_s in (1000.0, 18.0, 1000.0, 18.0):
        hung.t_s = thread_s
        assert gate.call(Service()) == {}
    hung.errors.append(SILENCE)
    with pytest.raises(CloudError, match="ReadTimeoutError"):
        gate.call(hung)
    with pytest.raises(ThrottledError, match="left alone"):
        gate.call(hung)
    now_s = 60.0
    assert gate.call(Service()) == {}


def test_a_round_that_took_too_long_begins_no_call() -> None:
    """This holds even if all calls ended well. Other threads and the next round are not concerned."""
    slow = Service(6.0)
    gate = Gate(SITE, monotonic=slow.monotonic)
    with within(10.0, slow.monotonic):
        for _ in range(2):
            assert gate.call(slow) == {}
        with pytest.raises(ThrottledError, match="wait for the next round"):
            gate.call(slow)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(gate.call, slow).result() == {}
    assert gate.call(slow) == {}
    assert slow.calls == 4


def test_what_we_compute_ourselves_does_not_make_a_round_long() -> None:
    """The same holds outside of a round."""
    slow = Service(6.0)
    gate = Gate(SITE, monotonic=slow.monotonic)
    with within(10.0, slow.monotonic):
        assert gate.call(slow) == {}
        with computing(slow.monotonic):
            slow.t_s += 1000.0
        assert gate.call(slow) == {}
        with pytest.raises(ThrottledError, match="wait for the next round"):
            gate.call(slow)
    with computing(slow.monotonic):
        slow.t_s += 1000.0
    assert gate.call(slow) == {}


@pytest.mark.parametrize("error", [refused("InternalError", 500), refused("Throttling"), SILENCE])
def test_what_is_the_clouds_own_fault_uses_up_time(error: Exception) -> None:
    slow = Service(25.0, error)
    gate = Gate(SITE, monotonic=slow.monotonic)
    with pytest.raises(CloudError):
        gate.call(slow)
    with pytest.raises(ThrottledError, match="left alone"):
        gate.call(slow)


def test_a_refusal_uses_up_nothing() -> None:
    slow = Service(25.0, refused("InvalidInstanceID.NotFound"), refused("InsufficientInstanceCapacity"))
    gate = Gate(SITE, monotonic=slow.monotonic)
    for kind in (NotFoundError, CapacityError):
        with pytest.raises(kind):
            gate.call(slow)
    assert gate.call(slow) == {}


def test_calls_are_repeated_after_faults_and_lost_answers(moto: MotoServer) -> None:
    """The SDK tries three times in all."""
    with fault_proxy(moto.url, share=0.0) as proxy:
        gate = Gate(SITE, options={**moto.options, "endpoint_url": proxy.url})
        ec2 = gate.client("ec2")
        assert gate.client("ec2") is ec2
        for fault in (Fault.LOST, Fault.UNAVAILABLE, Fault.THROTTLED):
            proxy.script.append(fault)
            assert gate.call(ec2.describe_vpcs)["Vpcs"]
        proxy.requests.clear()
        proxy.script.extend([Fault.INTERNAL] * 3)
        with pytest.raises(CloudError):
            gate.call(ec2.describe_vpcs)
        assert len(proxy.requests) == 3


def test_a_launch_is_signed_only_while_its_controller_leads() -> None:
    """The second try is checked, too, because the first one may have waited for long."""
    for answers in ([False], [True, False]):
        led = iter(answers)
        nowhere = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "endpoint_url": "http://127.0.0.1:1"}
        gate = Gate(SITE, options=nowhere)
        gate.buy_while(lambda led=led: next(led))  # type: ignore[misc]
        ec2 = gate.client("ec2", patient=True)
        with pytest.raises(LostLease, match="before the call was signed"):
            gate.call(
                ec2.create_fleet, patient=True,
                LaunchTemplateConfigs=[], TargetCapacitySpecification={"TotalTargetCapacity": 1},
            )  # fmt: skip
        assert next(led, None) is None


def test_an_alias_is_moved_only_while_its_controller_leads() -> None:
    """The second try is checked, too. Calls that only read are always signed."""
    with fault_proxy("http://127.0.0.1:1", share=0.0) as proxy:
        proxy.script.extend([Fault.INTERNAL] * 6)
        led = iter([True, False])
        options = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "endpoint_url": proxy.url}
        gate = Gate(SITE, options=options)
        gate.buy_while(lambda: next(led))
        client = gate.client("lambda")
        with pytest.raises(LostLease, match="before the call was signed"):
            gate.call(client.update_alias, FunctionName="f", Name="balancer", FunctionVersion="2")
        assert len(proxy.requests) == 1
        with pytest.raises(CloudError):
            gate.call(client.get_alias, FunctionName="f", Name="balancer")


def test_a_client_that_cannot_be_made_is_a_cloud_error() -> None:
    with pytest.raises(CloudError, match="ec2: "):
        Gate(SITE, options={"endpoint_url": "no address"}).client("ec2")


def test_pages_are_followed() -> None:
    def method(NextToken: str = "0", **_: Any) -> dict[str, Any]:
        page = int(NextToken)
        return {"page": page, **({"NextToken": str(page + 1)} if page < 3 else {})}

    assert [answer["page"] for answer in Gate(SITE).pages(method, MaxResults=1)] == [0, 1, 2, 3]
