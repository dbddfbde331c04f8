"""The cost of a fleet beside its instances: balancer, public addresses, data moved, the site. The meter bills disks.

Prices of us-east-1, AWS price list, 2026-07. They apply if the catalogue bills extras (aws-2026), not for the paper's
day.
"""

from __future__ import annotations

from mark.cloud.billing.meter import DISK_USD_PER_GIB_MONTH

BALANCER_USD_PER_HOUR = 0.0225  # Application Load Balancer, per started hour; here by the second
BALANCER_LCU_USD_PER_HOUR = 0.008  # one capacity unit: 25 new connections/s or 1 GB an hour
LCU_GB_PER_HOUR = 1.0
LCU_REQUESTS_PER_S = 25.0 * 40.0  # connections are kept alive: 40 requests a connection (assumed)
BALANCER_ZONES = 3.0  # unless `mark deploy --zones` gives another number
ADDRESS_USD_PER_HOUR = 0.005  # a public IPv4 address
INTERNET_OUT_USD_PER_GB = 0.09
# A deployed site, independent of its traffic.
NAT_USD_PER_HOUR = 0.045
NAT_USD_PER_GB = 0.045
CONTROLLER_USD_PER_HOUR = 0.0168  # t4g.small
CONTROLLER_DISK_GIB = 8.0
ALARM_USD_PER_MONTH = 0.10
METRIC_USD_PER_MONTH = 0.30  # a custom metric, for each combination of dimensions
METRIC_CALL_USD = 0.01 / 1e3
LOG_USD_PER_GB = 0.50
BUCKET_USD_PER_GB_MONTH = 0.023
SNAPSHOT_USD_PER_GB_MONTH = 0.05  # of a disk, standard tier
IMAGE_USD_PER_GB_MONTH = 0.10  # in a repository of ECR
QUEUE_CALL_USD = 0.40 / 1e6
QUEUE_POLL_S = 3.0  # the controller polls again after each answer, and waits this long for one
ZONE_USD_PER_GB = 0.01  # per direction, for traffic between zones
# The lease is renewed every few seconds and a service's state is written once a minute: 2 writes of 1 KiB a second
# (assumed), 0.625 $ a million.
STATE_USD_PER_HOUR = 2.0 * 3600.0 * 0.625 / 1e6

LEFT_OUT = "the bill leaves out balancer, disks, public addresses and data moved"
LEFT_OUT_WITH_EXTRAS = "the bill leaves out logs, metrics, alarms, data through NAT and between zones"


def site_usd_per_hour() -> float:
    """Return dollars an hour of a site without instances.

    It has the controller with its disk, the NAT gateway with its address, the table in DynamoDB, and the queue.
    """
    disk = CONTROLLER_DISK_GIB * DISK_USD_PER_GIB_MONTH / 730.0
    nat = NAT_USD_PER_HOUR + ADDRESS_USD_PER_HOUR
    return CONTROLLER_USD_PER_HOUR + disk + nat + STATE_USD_PER_HOUR + 3600.0 / QUEUE_POLL_S * QUEUE_CALL_USD


def conductors_usd_per_hour(count: int) -> float:
    """Return dollars an hour of `count` conductors with their disks, and of the private balancer behind them."""
    disk = CONTROLLER_DISK_GIB * DISK_USD_PER_GIB_MONTH / 730.0
    return count * (CONTROLLER_USD_PER_HOUR + disk) + BALANCER_USD_PER_HOUR


def extras(duration_s: float, requests: int, request_kb: float, response_kb: float) -> dict[str, tuple[float, float]]:
    """Return a run's amount and price of each extra: balancer hours and units, address hours, GB sent out.

    The addresses are the balancer's, in each of its zones; instances are behind it in private subnets, without
    addresses.
    """
    gb = requests * (request_kb + response_kb) / 1e6
    return {
        "balancer": (duration_s / 3600.0, BALANCER_USD_PER_HOUR),
        "balancer units": (
            max(gb / LCU_GB_PER_HOUR, requests / (LCU_REQUESTS_PER_S * 3600.0)),
            BALANCER_LCU_USD_PER_HOUR,
        ),
        "public addresses": (BALANCER_ZONES * duration_s / 3600.0, ADDRESS_USD_PER_HOUR),
        "data out": (requests * response_kb / 1e6, INTERNET_OUT_USD_PER_GB),
    }


def extras_usd(duration_s: float, requests: int, request_kb: float, response_kb: float) -> float:
    """Return dollars of a run for balancer, addresses, and answers sent to the internet."""
    parts = extras(duration_s, requests, request_kb, response_kb)
    return sum(amount * usd for amount, usd in parts.values())
