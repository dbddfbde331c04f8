"""The line of a comparison to which a line item of AWS's cost and usage report belongs.

Usage types: AWS, "Understanding your AWS billing and usage reports" of EC2, ELB, VPC, Lambda and SageMaker. Outside
us-east-1 they begin with a region (`USE2-BoxUsage:c5.large`), which is dropped. Line item types: AWS, "Cost and Usage
Report, line item details".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from mark.traffic.traces.blocks import shown

INSTANCE_MARKETS = ("on_demand", "spot", "burstable", "sagemaker")
# The item types whose amounts are use. The amounts of other types are no use, or repeat these.
USED = frozenset({"Usage", "DiscountedUsage", "SavingsPlanCoveredUsage"})


@dataclass(frozen=True, slots=True)
class InvoiceLine:
    """A line of the comparison of invoice and simulation. `market` is a field of Bill; "": no simulation has the line.

    `name` is the instance type for instances; `unit` is the unit of the amounts. `is_use` is false for paid items that
    are not use: credits, taxes, fees.
    """

    market: str
    name: str
    unit: str = ""
    is_use: bool = True

    @property
    def is_instance(self) -> bool:
        return self.market in INSTANCE_MARKETS and self.unit == "h"

    @property
    def label(self) -> str:
        return f"{self.name} {self.market.replace('_', '-')}" if self.is_instance else self.name


COMMITMENTS = InvoiceLine("on_demand", "commitments", is_use=False)
CREDIT = InvoiceLine("", "credit", is_use=False)
REFUND = InvoiceLine("", "refund", is_use=False)
TAX = InvoiceLine("", "tax", is_use=False)
SUPPORT = InvoiceLine("", "support", is_use=False)
CPU_CREDITS = InvoiceLine("burstable", "CPU credits", "vCPU-h")
GB_SECONDS = InvoiceLine("functions", "function time", "GB-s")
CALLS = InvoiceLine("functions", "function calls", "calls")
DISKS = InvoiceLine("other", "disks", "GB-mo")
BALANCER = InvoiceLine("other", "balancer", "h")
BALANCER_UNITS = InvoiceLine("other", "balancer units", "LCU-h")
ADDRESSES = InvoiceLine("other", "public addresses", "h")
DATA_OUT = InvoiceLine("other", "data out", "GB")
SITE = InvoiceLine("other", "controller, NAT, table, queue")  # of mark's own site; invoices list the parts separately
EXTRAS = (BALANCER, BALANCER_UNITS, ADDRESSES, DATA_OUT)

_REGION = re.compile(r"^(?:[A-Z]{2,4}\d*-)+")
_BY_PATTERN = (
    (re.compile(r"CPUCredits:.+"), CPU_CREDITS),
    (re.compile(r"Lambda-GB-Second(-ARM)?"), GB_SECONDS),
    (re.compile(r"EBS:VolumeUsage(\..+)?"), DISKS),
    (re.compile(r"LoadBalancerUsage"), BALANCER),
    (re.compile(r"LCUUsage"), BALANCER_UNITS),
    (re.compile(r"PublicIPv4:(InUse|Idle)Address"), ADDRESSES),
)
_BY_ITEM_TYPE = {"Tax": TAX, "Credit": CREDIT, "Refund": REFUND}
_SUPPORT = re.compile(r"AWS ?(Support|DeveloperSupport|PremiumSupport)")
_INSTANCE = re.compile(r"(BoxUsage|SpotUsage|Host)(?::(.+))?")
_BURSTABLE = re.compile(r"t\d[a-z]*\.")
_MACHINE_LEARNING = frozenset({"AmazonSageMaker", "MachineLearningSavingsPlans"})
# The products whose moved data is compared. Others move data too, at other prices and for other reasons.
_MOVES_DATA = frozenset({"AmazonEC2", "AWSELB", "AWSDataTransfer"})


@lru_cache(maxsize=4096)
def line_of(product: str, usage_type: str, item_type: str) -> InvoiceLine:
    """Return the line of a line item, by its product code, usage type and line item type in the report.

    Recurring fees of reserved instances and savings plans, and the amounts that a plan takes off, are one line,
    `commitments`; upfront fees are not in it, because they cover years. Private discounts belong to the use that they
    discount. Any other item gets its own line, named as in the report.
    """
    if item_type in _BY_ITEM_TYPE:
        return _BY_ITEM_TYPE[item_type]
    if _SUPPORT.match(product):
        return SUPPORT
    plan = item_type in ("SavingsPlanRecurringFee", "SavingsPlanNegation") and product not in _MACHINE_LEARNING
    if plan or (item_type == "RIFee" and product == "AmazonEC2"):
        return COMMITMENTS
    if item_type in USED or item_type.endswith("Discount"):
        found = _used(product, _REGION.sub("", usage_type))
        if found is not None:
            return found
    kind = "" if item_type in USED else f" {item_type}"
    name = shown(f"{product} {usage_type}{kind}".strip().encode())
    return InvoiceLine("", name, is_use=item_type in USED or item_type.endswith("Discount"))


def _used(product: str, usage_type: str) -> InvoiceLine | None:
    for pattern, line in _BY_PATTERN:
        if pattern.fullmatch(usage_type):
            return line
    if product == "AWSLambda" and usage_type in ("Request", "Request-ARM"):
        return CALLS
    if product in _MOVES_DATA and usage_type == "DataTransfer-Out-Bytes":
        return DATA_OUT
    found = _INSTANCE.fullmatch(usage_type)
    if found is None:
        return None
    how, instance = found[1], shown((found[2] or "m1.small").encode())  # AWS omits the name of its oldest type
    if how == "Host":
        # EC2's dedicated hosts are not SageMaker hosts.
        return InvoiceLine("sagemaker", instance, "h") if instance.startswith("ml.") else None
    if product != "AmazonEC2":
        return None
    if how == "SpotUsage":
        return InvoiceLine("spot", instance, "h")
    return InvoiceLine("burstable" if _BURSTABLE.match(instance) else "on_demand", instance, "h")
