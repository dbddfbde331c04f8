"""What a fleet costs beside its instances: balancer, public addresses, data moved (disks are the meter's).

Prices of us-east-1, AWS price list, 2026-07; on where the catalogue bills extras (aws-2026), off for the paper's day.
"""

from __future__ import annotations

BALANCER_USD_PER_HOUR = 0.0225  # Application Load Balancer, per started hour; here by the second
BALANCER_LCU_USD_PER_HOUR = 0.008  # one capacity unit: 25 new connections/s or 1 GB an hour
LCU_GB_PER_HOUR = 1.0
LCU_REQUESTS_PER_S = 25.0 * 40.0  # new connections are kept alive: 40 requests a connection (assumed)
ADDRESS_USD_PER_HOUR = 0.005  # a public IPv4 address
INTERNET_OUT_USD_PER_GB = 0.09

LEFT_OUT = "the bill leaves out balancer, disks, public addresses and data moved"
LEFT_OUT_WITH_EXTRAS = "the bill leaves out logs, metrics, NAT and cross-zone traffic"


def extras_usd(duration_s: float, instance_hours: float, requests: int, request_kb: float, response_kb: float) -> float:
    """Dollars of a run for balancer, addresses, and answers sent to the internet."""
    hours = duration_s / 3600.0
    gb = requests * (request_kb + response_kb) / 1e6
    units = max(gb / LCU_GB_PER_HOUR, requests / (LCU_REQUESTS_PER_S * 3600.0))
    return (
        hours * BALANCER_USD_PER_HOUR
        + units * BALANCER_LCU_USD_PER_HOUR
        + instance_hours * ADDRESS_USD_PER_HOUR
        + requests * response_kb / 1e6 * INTERNET_OUT_USD_PER_GB
    )
