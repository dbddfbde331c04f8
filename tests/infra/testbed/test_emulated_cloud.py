"""The life of instances, as EC2's API, EventBridge and the bill show it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from mark_infra.testbed.addresses import Addresses
from mark_infra.testbed.emulated_cloud import LocalCloud
from mark_infra.testbed.instances import REBALANCE, STATE_CHANGE, WARNING

from mark.cloud.billing.extras import extras_usd
from mark.cloud.ec2.draws import Start, service_seed
from mark.cloud.ec2.lifecycle import State
from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.domain.faults import Faults
from mark.profiling.played_faults import FaultStream
from tests.infra.testbed.cloud_fakes import BURSTABLE, CATALOG, ON_DEMAND, SPOT_A, UNLIMITED, FakeMachines
from tests.infra.testbed.conftest import Aws
from tests.infra.testbed.test_launches import refused, run

SPOT: dict[str, Any] = {
    "InstanceMarketOptions": {"MarketType": "spot"},
    "Placement": {"AvailabilityZone": "us-east-1a"},
}


def tagged(**tags: str) -> dict[str, Any]:
    named = [{"Key": f"mark:{key}", "Value": value} for key, value in tags.items()]
    return {"TagSpecifications": [{"ResourceType": "instance", "Tags": named}]}


def launched(aws: Aws, count: int = 1, **what: Any) -> list[str]:
    return run(aws, MinCount=count, MaxCount=count, **{**tagged(service="s"), **what})


def queue(aws: Aws) -> Callable[[], list[dict[str, Any]]]:
    """Make a queue for all of EC2's events; return a function that reads it."""
    sqs, events = aws.client("sqs"), aws.client("events")
    url = sqs.create_queue(QueueName="test")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="test", EventPattern=json.dumps({"source": ["aws.ec2"]}))
    events.put_targets(Rule="test", Targets=[{"Id": "queue", "Arn": arn}])

    def read() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while got := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in got:
                found.append(json.loads(message["Body"]))
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    return read


def test_an_instance_boots_runs_stops_starts_and_ends(aws: Aws) -> None:
    """It passes through all states, in control seconds, and its machine follows."""
    (i,) = launched(aws, InstanceType="t2.small")
    ((_, machine),) = aws.machines.said
    assert (machine.instance_id, machine.instance_type, machine.service) == (i, "t2.small", "s")
    assert machine.boot_s == 60.0
    assert machine.address == aws.instance(i)["PrivateIpAddress"]
    assert aws.state(i) == "pending"
    aws.time.s += 20.0  # the cloud hears nothing: it looks by itself
    assert aws.state(i) == "running"
    ec2 = aws.client("ec2")
    stopping = ec2.stop_instances(InstanceIds=[i])["StoppingInstances"][0]
    assert stopping["PreviousState"]["Name"] == "running"
    assert aws.state(i) == "stopping"
    assert aws.machines.said[-1] == ("end", i)
    aws.pass_s(10.0)
    assert aws.state(i) == "stopped"
    assert aws.instance(i)["StateTransitionReason"].startswith("User initiated (2027-01-15 08:00:20 GMT)")
    aws.pass_s(100.0)
    ec2.start_instances(InstanceIds=[i])
    assert aws.machines.there[i].boot_s == 30.0  # the resume delay
    assert aws.machines.there[i].address == machine.address
    assert aws.instance(i)["LaunchTime"] == datetime(2027, 1, 15, 8, 2, 10, tzinfo=UTC)
    aws.pass_s(20.0)
    assert aws.state(i) == "running"
    assert aws.instance(i)["StateTransitionReason"] == ""
    ec2.terminate_instances(InstanceIds=[i])
    assert aws.state(i) == "shutting-down"
    aws.pass_s(5.0)
    assert aws.state(i) == "terminated"
    assert aws.instance(i)["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert aws.machines.there == {}
    ec2.terminate_instances(InstanceIds=[i])
    aws.pass_s(3600.0)
    assert aws.instances() == []


def test_instance_terminated_long_after_its_stop_is_described_for_an_hour(aws: Aws) -> None:
    (i,) = launched(aws)
    aws.pass_s(20.0)
    aws.client("ec2").stop_instances(InstanceIds=[i])
    aws.pass_s(3500.0)
    aws.client("ec2").terminate_instances(InstanceIds=[i])
    aws.pass_s(200.0)
    assert aws.state(i) == "terminated"
    aws.pass_s(3600.0)
    assert aws.instances() == []


def test_what_cannot_be_is_refused(aws: Aws) -> None:
    """Ended instances neither start, stop nor reboot. Booting ones do not stop, nor does one-time spot."""
    ec2 = aws.client("ec2")
    (i,) = launched(aws)
    with pytest.raises(ClientError) as error:
        ec2.stop_instances(InstanceIds=[i])
    assert refused(error) == "IncorrectInstanceState"
    ec2.terminate_instances(InstanceIds=[i])
    for passed_s in (0.0, 5.0):
        aws.pass_s(passed_s)
        for verb in (ec2.start_instances, ec2.stop_instances, ec2.reboot_instances):
            with pytest.raises(ClientError) as error:
                verb(InstanceIds=[i])
            assert refused(error) == "IncorrectInstanceState"
    (spot,) = launched(aws, **SPOT)
    aws.pass_s(20.0)
    with pytest.raises(ClientError) as error:
        ec2.stop_instances(InstanceIds=[spot])
    assert refused(error) == "UnsupportedOperation"
    assert aws.state(spot) == "running"
    kept = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "persistent"}}
    (spot,) = launched(aws, **{**SPOT, "InstanceMarketOptions": kept})
    aws.pass_s(20.0)
    ec2.stop_instances(InstanceIds=[spot])
    assert aws.state(spot) == "stopping"


def test_events_tell_every_state_at_its_second(aws: Aws) -> None:
    """They have the form of EC2's on EventBridge: account, region, resources, whole seconds."""
    read = queue(aws)
    (i,) = launched(aws)
    aws.pass_s(300.0)  # events have the time at which they happened, not at which the cloud looked
    aws.client("ec2").terminate_instances(InstanceIds=[i])
    aws.pass_s(60.0)
    events = read()
    assert [(event["detail"]["state"], event["time"]) for event in events] == [
        ("pending", "2027-01-15T08:00:00Z"),
        ("running", "2027-01-15T08:00:20Z"),
        ("shutting-down", "2027-01-15T08:05:00Z"),
        ("terminated", "2027-01-15T08:05:05Z"),
    ]
    for event in events:
        assert event["detail-type"] == STATE_CHANGE
        assert event["source"] == "aws.ec2"
        assert (event["account"], event["region"]) == ("123456789012", "us-east-1")
        assert event["resources"] == [f"arn:aws:ec2:us-east-1:123456789012:instance/{i}"]
        assert event["detail"]["instance-id"] == i


def test_an_interruption_warns_and_takes_the_instance_two_minutes_later(aws: Aws) -> None:
    """The event and the machine's own metadata announce it; then AWS shuts the instance down."""
    read = queue(aws)
    spot, (on_demand,) = launched(aws, 5, **SPOT), launched(aws)
    aws.pass_s(20.0)
    read()
    taken = aws.cloud.interrupt(0.4, 7)
    assert len(taken) == 2
    assert set(taken) <= set(spot)
    events = read()
    assert sorted(event["detail-type"] for event in events) == [REBALANCE, REBALANCE, WARNING, WARNING]
    for event in events:
        assert event["detail"]["instance-id"] in taken
        if event["detail-type"] == WARNING:
            assert event["detail"]["instance-action"] == "terminate"
            assert event["resources"] == [f"arn:aws:ec2:us-east-1a:instance/{event['detail']['instance-id']}"]
    assert ("announce", taken[0], "terminate", 1_800_000_140.0) in aws.machines.said
    aws.pass_s(119.0)
    assert {aws.state(i) for i in spot} == {"running"}
    aws.pass_s(1.0)
    assert {aws.state(i) for i in taken} == {"shutting-down"}
    assert aws.state(on_demand) == "running"
    aws.pass_s(5.0)
    ended = aws.instance(taken[0])
    assert ended["State"]["Name"] == "terminated"
    assert ended["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert ended["StateTransitionReason"].startswith("Service initiated")
    assert aws.cloud.status()["interrupted"] == 2
    with pytest.raises(BadInput):
        aws.cloud.interrupt(1.5, 0)


def test_an_interruption_of_what_is_ended_before_is_nothing_more(aws: Aws) -> None:
    """It was terminated within the two minutes: it ends once, by the user."""
    (i,) = launched(aws, **SPOT)
    aws.pass_s(20.0)
    assert aws.cloud.interrupt(1.0, 0) == (i,)
    assert aws.cloud.interrupt(1.0, 0) == ()
    aws.client("ec2").terminate_instances(InstanceIds=[i])
    aws.pass_s(200.0)
    assert aws.instance(i)["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert [said[0] for said in aws.machines.said].count("end") == 1


def test_the_bill_is_that_of_the_events(aws: Aws) -> None:
    """Each instance pays whole seconds from running to shutting-down or stopping, at least 60. The test leaves the
    meter out."""
    read = queue(aws)
    long, short = launched(aws)[0], launched(aws, **SPOT)[0]
    standby = launched(aws, InstanceType="t2.small")[0]
    ec2 = aws.client("ec2")
    aws.pass_s(37.4)
    ec2.terminate_instances(InstanceIds=[short])
    aws.pass_s(100.4)
    ec2.stop_instances(InstanceIds=[standby])
    aws.pass_s(500.9)
    ec2.terminate_instances(InstanceIds=[long])
    aws.pass_s(1000.0)
    seconds: dict[str, float] = {}
    from_s: dict[str, float] = {}
    for event in read():
        i, state = event["detail"]["instance-id"], event["detail"]["state"]
        at_s = datetime.fromisoformat(event["time"]).timestamp()
        if state == "running":
            from_s[i] = at_s
        elif state in ("stopping", "shutting-down"):
            seconds[i] = seconds.get(i, 0.0) + max(60.0, at_s - from_s.pop(i))
    bill = aws.cloud.bill()
    assert bill.on_demand == pytest.approx(seconds[long] * ON_DEMAND.usd_per_s, abs=1e-12)
    assert bill.spot == pytest.approx(60.0 * SPOT_A.usd_per_s, abs=1e-12)
    assert bill.burstable == pytest.approx(seconds[standby] * BURSTABLE.usd_per_s, abs=1e-12)
    assert bill.other == bill.functions == 0.0
    assert aws.cloud.status()["problems"] == []


def test_balancers_addresses_and_data_are_on_the_bill(make_aws: Callable[..., Aws]) -> None:
    """Each service pays them from the start on; instances have no public addresses."""
    services = [replace(load_service("inception-v3"), name=name) for name in ("one", "two")]
    bills = replace(CATALOG, bills_extras=True)
    aws = make_aws(catalog=bills, services=services, requests={"one": 1000, "two": 5}.__getitem__)
    launched(aws)
    aws.pass_s(3600.0)
    moved = sum(extras_usd(3600.0, n, services[0].request_kb, services[0].response_kb) for n in (1000, 5))
    disk_usd = 8 * 0.08 * 3600.0 / (730.0 * 3600.0)
    assert aws.cloud.bill().other == pytest.approx(moved + disk_usd, rel=1e-3)


def test_functions_are_on_the_bill(make_aws: Callable[..., Aws]) -> None:
    """The local Lambda reports their use."""
    assert make_aws(functions_usd=lambda: 1.25).cloud.bill().total == 1.25


def test_a_token_that_launched_twice_is_a_problem(aws: Aws) -> None:
    """The tag names a launch, whatever the client tokens were. A launch may be spread over zones."""
    for zone in ("us-east-1a", "us-east-1b"):
        launched(aws, 2, Placement={"AvailabilityZone": zone}, **tagged(service="s", launch="a"))
    assert aws.cloud.problems() == []
    launched(aws, Placement={"AvailabilityZone": "us-east-1b"}, **tagged(service="s", launch="a"))
    assert aws.cloud.problems() == ["launched 2 times for one token, a"]


def test_time_may_be_compressed(make_aws: Callable[..., Aws]) -> None:
    """At ten control seconds a second boots and notices are shorter, dollars are not."""
    aws = make_aws(time_scale=10.0)
    (i,) = launched(aws, **SPOT)
    assert aws.machines.there[i].boot_s == 6.0
    aws.pass_s(2.0)
    assert aws.state(i) == "running"
    aws.cloud.interrupt(1.0, 0)
    aws.pass_s(11.0)
    assert aws.state(i) == "running"
    aws.pass_s(1.0)
    assert aws.state(i) == "shutting-down"
    assert aws.cloud.bill().spot == pytest.approx(120.0 * SPOT_A.usd_per_s)


def test_a_fall_of_the_spot_market_takes_the_oldest(make_aws: Callable[..., Aws]) -> None:
    """At half of its share the older half of the zone's instances is interrupted, and no more can be launched. At zero
    all are interrupted."""
    aws = make_aws(spot_shares={"us-east-1a": [(0.0, 1.0), (100.0, 0.5), (1000.0, 0.0)]})
    first, later = launched(aws, 2, **SPOT), None
    aws.pass_s(10.0)
    later = launched(aws, 2, **SPOT)
    aws.pass_s(90.0)
    interrupted = {one["id"] for one in aws.cloud.status()["fleet"] if one["doomed"]}
    assert interrupted == set(first)
    with pytest.raises(ClientError) as error:
        launched(aws, **SPOT)
    assert refused(error) == "InsufficientInstanceCapacity"
    aws.pass_s(900.0)
    assert {one["id"] for one in aws.cloud.status()["fleet"]} == set(later)
    with pytest.raises(ClientError):
        launched(aws, **SPOT)
    aws.pass_s(120.0)
    assert {aws.state(i) for i in later} == {"shutting-down"}


def test_credits_run_out_and_slow_the_machine(make_aws: Callable[..., Aws]) -> None:
    """A t2 with one launch credit runs a minute at full speed, then at the baseline; idle it earns its speed back."""
    busy = {"s": 0.0}
    aws = make_aws(busy_s=lambda address: busy["s"])
    (i,) = launched(aws, InstanceType="t2.small")
    aws.pass_s(20.0)
    for _ in range(20):
        busy["s"] += 5.0
        aws.pass_s(5.0)
    assert ("speed", i, 0.2) in aws.machines.said
    assert aws.cloud.status()["fleet"][0]["credits"] < 0.2
    for _ in range(30):
        aws.pass_s(5.0)
    assert aws.machines.said[-1] == ("speed", i, 1.0)
    said = aws.client("ec2").describe_instance_credit_specifications(InstanceIds=[i])
    assert said["InstanceCreditSpecifications"] == [{"InstanceId": i, "CpuCredits": "standard"}]


def test_busy_time_beyond_the_time_passed_is_charged_later(make_aws: Callable[..., Aws]) -> None:
    """A batch counts when it is complete: half of the only credit is spent after its 30 seconds."""
    busy = {"s": 0.0}
    aws = make_aws(busy_s=lambda address: busy["s"])
    launched(aws, InstanceType="t2.small")
    aws.pass_s(20.0)
    busy["s"] += 30.0
    for _ in range(6):
        aws.pass_s(5.0)
    assert 0.5 < aws.cloud.status()["fleet"][0]["credits"] < 0.7


def test_surplus_credits_are_billed(make_aws: Callable[..., Aws]) -> None:
    """A t3 is unlimited: it stays fast and pays for use beyond its earnings, unless standard mode is requested."""
    busy = {"s": 0.0}
    aws = make_aws(busy_s=lambda address: busy["s"])
    (i,) = launched(aws, InstanceType="t3.small")
    (standard,) = launched(aws, InstanceType="t3.small", CreditSpecification={"CpuCredits": "standard"})
    aws.pass_s(20.0)
    for _ in range(120):
        busy["s"] += 5.0
        aws.pass_s(5.0)
    aws.client("ec2").terminate_instances(InstanceIds=[i, standard])
    surplus = (600.0 * 2.0 / 60.0 - 24.0 / 3600.0 * 600.0) / 60.0 * 0.05
    assert aws.cloud.bill().burstable == pytest.approx(2 * 600.0 * UNLIMITED.usd_per_s + surplus)
    assert ("speed", i, 0.2) not in aws.machines.said
    assert ("speed", standard, 0.2) in aws.machines.said
    said = aws.client("ec2").describe_instance_credit_specifications(InstanceIds=[i, standard])
    assert {s["CpuCredits"] for s in said["InstanceCreditSpecifications"]} == {"unlimited", "standard"}


def test_a_machine_that_lingers_keeps_its_instance_stopping(aws: Aws) -> None:
    """A stopped instance has no machine any more: only then may it be started again."""
    (i,) = launched(aws)
    aws.pass_s(20.0)
    aws.machines.lingers = True
    aws.client("ec2").stop_instances(InstanceIds=[i])
    aws.pass_s(30.0)
    assert aws.state(i) == "stopping"
    aws.machines.there.clear()
    aws.pass_s(1.0)
    assert aws.state(i) == "stopped"


def test_a_machine_that_cannot_start_is_an_instance_that_ends(aws: Aws) -> None:
    """EC2 does the same: it launches the instance, then the server terminates it, free of charge."""
    aws.machines.fails = True
    (i,) = launched(aws)
    aws.pass_s(5.0)
    assert aws.instance(i)["StateReason"]["Code"] == "Server.InternalError"
    assert aws.cloud.bill().total == 0.0


def test_on_request_instances_of_an_offer_end_before_they_run(aws: Aws) -> None:
    """The launch is accepted, but nothing boots, free of charge. Later launches are normal."""
    name = next(iter(aws.cloud.lifecycle.supply.index))
    aws.cloud.lifecycle.supply.ends_at_launch[name] = ("Client.VolumeLimitExceeded", "Volume limit exceeded")
    (i,) = launched(aws)
    aws.pass_s(30.0)
    assert aws.state(i) == "terminated"
    assert aws.instance(i)["StateReason"]["Code"] == "Client.VolumeLimitExceeded"
    assert not aws.machines.there
    assert aws.cloud.bill().total == 0.0
    aws.cloud.lifecycle.supply.ends_at_launch.clear()
    (other,) = launched(aws)
    aws.pass_s(30.0)
    assert aws.state(other) == "running"


def test_instances_without_a_service_have_no_machine(aws: Aws) -> None:
    """They run and are paid for, but nothing answers there."""
    (i,) = run(aws)
    aws.pass_s(20.0)
    assert aws.state(i) == "running"
    assert aws.machines.said == []


def test_addresses_are_unique_and_on_the_loopback(make_aws: Callable[..., Aws]) -> None:
    """Each instance has its own address, and a second cloud on this machine uses another network."""
    aws = make_aws()
    launched(aws, 3)
    addresses = [instance["PrivateIpAddress"] for instance in aws.instances()]
    assert len(set(addresses)) == 3
    other = Addresses()
    network = addresses[0].rpartition(".")[0]
    assert other.next().rpartition(".")[0] != network
    assert all(address.startswith("127.") for address in addresses)
    other.close()


def test_the_same_seed_boots_the_same(make_aws: Callable[..., Aws]) -> None:
    """The simulated cloud agrees: the n-th launch of a seed takes as long in both."""
    from mark.domain.catalog.tables import load_catalog
    from mark.simulation.world.simulated_cloud import SimulatedCloud
    from tests.infra.testbed.cloud_fakes import IdlePlane

    catalog = load_catalog("aws-2026")
    offer = next(offer for offer in catalog.offers if offer.name == "c5.large/on-demand")
    aws = make_aws(catalog=catalog, seed=3)
    launched(aws, 3)
    booted = [said[1].boot_s for said in aws.machines.said]
    assert len(set(booted)) == 3
    plane = IdlePlane()
    simulated = SimulatedCloud([offer], plane, seed=3, end_s=1e4)
    simulated.launch(offer.name, 3, "t")
    simulated.advance(1e4)
    assert sorted(booted) == pytest.approx(sorted(plane.added_s.values()))


def test_a_crash_strikes_the_machine_and_the_cloud_sees_nothing(make_aws: Callable[..., Aws]) -> None:
    """The simulator's draw gives the time since the instance began to serve. A crashed instance is paid for until it is
    ended, and an ended one never crashes."""
    service = replace(load_service("inception-v3"), name="s", faults=Faults(crashes_per_hour=30.0))
    aws = make_aws(services=[service], seed=3, time_scale=10.0)
    first, second, other = (*launched(aws, 2), *launched(aws, **tagged(service="other")))
    crash_s = [(60.0 + Start(3, number, 0).until_crash_s(30.0)) / 10.0 for number in (1, 2)]
    early, late = sorted((first, second), key=dict(zip((first, second), crash_s, strict=True)).__getitem__)
    aws.pass_s(min(crash_s) - 0.01)
    assert aws.cloud.status()["crashed"] == 0
    aws.client("ec2").terminate_instances(InstanceIds=[late])
    aws.pass_s(0.02)
    assert aws.machines.said[-1] == ("crash", early)
    aws.pass_s(1000.0)
    assert [said for said in aws.machines.said if said[0] == "crash"] == [("crash", early)]
    assert aws.state(early) == aws.state(other) == "running"
    assert aws.cloud.status()["crashed"] == 1


def test_a_machine_knows_whose_faults_it_plays(make_aws: Callable[..., Aws]) -> None:
    """The faults are those of the n-th launch of its service, from the cloud's start by its clock."""
    services = [replace(load_service("inception-v3"), name=name) for name in ("one", "two")]
    aws = make_aws(services=services, seed=3, time_scale=10.0)
    for name in ("one", "two", "two"):
        launched(aws, **tagged(service=name))
    began_s = aws.cloud.began_s
    assert [said[1].faults for said in aws.machines.said] == [
        FaultStream(began_s, 3, 1, 10.0),
        FaultStream(began_s, service_seed(3, 1), 1, 10.0),
        FaultStream(began_s, service_seed(3, 1), 2, 10.0),
    ]


def test_many_at_once_do_not_trip_over_each_other(aws: Aws) -> None:
    """Several threads launch, end and look: no instance is lost or launched twice."""
    failures: list[BaseException] = []
    aws.client("ec2")

    def work(n: int) -> None:
        try:
            for k in range(4):
                (i,) = launched(aws, ClientToken=f"{n}-{k}")
                assert launched(aws, ClientToken=f"{n}-{k}") == [i]
                aws.cloud.step()
                if k % 2:
                    aws.client("ec2").terminate_instances(InstanceIds=[i])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert failures == []
    aws.pass_s(20.0)
    assert aws.cloud.status()["instances"] == {"running": 12, "terminated": 12}
    assert aws.cloud.problems() == []


def test_the_cloud_moves_on_by_itself(make_aws: Callable[..., Aws]) -> None:
    """Its own thread sees that a boot is over, without any request."""
    aws = make_aws()
    launched(aws)
    changed = threading.Event()
    show = aws.cloud.show

    def watch(instance_id: str, state: State, *rest: Any) -> None:
        show(instance_id, state, *rest)
        changed.set()

    aws.cloud.lifecycle._sink = type("Stage", (), {"show": staticmethod(watch), "emit": aws.cloud.emit})()
    aws.time.s += 20.0
    assert changed.wait(60.0)


def test_at_the_end_nothing_runs(make_aws: Callable[..., Aws]) -> None:
    """Machines end, the port is free, moto is as before, and a new cloud knows no instance of the old one."""
    from moto.ec2.models.instances import InstanceBackend

    before = InstanceBackend.run_instances
    aws = make_aws()
    assert InstanceBackend.run_instances is not before
    launched(aws, 2)
    aws.cloud.stop()
    assert aws.machines.there == {}
    assert InstanceBackend.run_instances is before
    again = make_aws(port=int(aws.url.rpartition(":")[2]))
    assert again.instances() == []


def test_a_machine_that_cannot_be_ended_leaves_nothing_else_behind(make_aws: Callable[..., Aws]) -> None:
    """moto is as before, a new cloud starts, and stopping the old one again ends its machines."""
    aws = make_aws()
    launched(aws, 2)
    aws.machines.cannot_end = True
    with pytest.raises(OSError, match="cannot be ended"):
        aws.cloud.stop()
    assert len(aws.machines.there) == 2
    assert make_aws().instances() == []
    aws.machines.cannot_end = False
    aws.cloud.stop()
    assert aws.machines.there == {}


def test_a_second_cloud_is_refused(make_aws: Callable[..., Aws]) -> None:
    """A process has one cloud at a time. The error of an impossible time scale names it."""
    aws = make_aws()
    with pytest.raises(RuntimeError, match="another local cloud"):
        make_aws()
    assert launched(aws)
    with pytest.raises(BadInput):
        LocalCloud(CATALOG, FakeMachines(), time_scale=0.0)


def test_tags_are_those_of_the_resource(aws: Aws) -> None:
    """The instance and DescribeTags agree, though moto finds them differently, also on changed and removed tags."""
    ec2 = aws.client("ec2")
    (i,) = launched(aws, **tagged(service="s", site="x"))
    launched(aws, **tagged(service="s", site="y"))
    ec2.create_tags(Resources=[i], Tags=[{"Key": "mark:site", "Value": "z"}, {"Key": "more", "Value": ""}])
    ec2.delete_tags(Resources=[i], Tags=[{"Key": "mark:service"}])
    found = ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [i]}])["Tags"]
    assert {t["Key"]: t["Value"] for t in found} == {"mark:site": "z", "more": ""}
    assert {t["Key"]: t["Value"] for t in aws.instance(i)["Tags"]} == {"mark:site": "z", "more": ""}
    assert [one["InstanceId"] for one in aws.instances(**{"tag:mark:site": ["z"]})] == [i]
