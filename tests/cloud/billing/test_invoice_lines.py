"""Line items find their line by product, usage type and kind, in any region; foreign items keep their names."""

from __future__ import annotations

import pytest

from mark.cloud.billing import invoice_lines as lines
from mark.cloud.billing.invoice_lines import InvoiceLine, line_of


@pytest.mark.parametrize(
    ("product", "usage_type", "line"),
    [
        ("AmazonEC2", "BoxUsage:c5.xlarge", InvoiceLine("on_demand", "c5.xlarge", "h")),
        ("AmazonEC2", "USE2-BoxUsage:c5.xlarge", InvoiceLine("on_demand", "c5.xlarge", "h")),
        ("AmazonEC2", "USW2-LAX1-BoxUsage:c5.xlarge", InvoiceLine("on_demand", "c5.xlarge", "h")),
        ("AmazonEC2", "EU-BoxUsage", InvoiceLine("on_demand", "m1.small", "h")),
        ("AmazonEC2", "BoxUsage:g4dn.xlarge", InvoiceLine("on_demand", "g4dn.xlarge", "h")),
        ("AmazonEC2", "BoxUsage:trn1.2xlarge", InvoiceLine("on_demand", "trn1.2xlarge", "h")),
        ("AmazonEC2", "BoxUsage:t3a.medium", InvoiceLine("burstable", "t3a.medium", "h")),
        ("AmazonEC2", "APN1-SpotUsage:c5.18xlarge", InvoiceLine("spot", "c5.18xlarge", "h")),
        ("AmazonEC2", "SpotUsage:t3.small", InvoiceLine("spot", "t3.small", "h")),
        ("AmazonEC2", "EUC1-CPUCredits:t3", lines.CPU_CREDITS),
        ("AmazonEC2", "EBS:VolumeUsage.gp3", lines.DISKS),
        ("AmazonEC2", "EBS:VolumeUsage", lines.DISKS),
        ("AWSLambda", "USW2-Lambda-GB-Second-ARM", lines.GB_SECONDS),
        ("AWSLambda", "Request", lines.CALLS),
        ("AmazonSageMaker", "USE1-Host:ml.m5.xlarge", InvoiceLine("sagemaker", "ml.m5.xlarge", "h")),
        ("AmazonSageMaker", "USE2-ML-Host:ml.c5.large", InvoiceLine("sagemaker", "ml.c5.large", "h")),
        ("AWSELB", "LoadBalancerUsage", lines.BALANCER),
        ("AWSELB", "EUW1-LCUUsage", lines.BALANCER_UNITS),
        ("AmazonVPC", "USE2-PublicIPv4:InUseAddress", lines.ADDRESSES),
        ("AmazonEC2", "EU-DataTransfer-Out-Bytes", lines.DATA_OUT),
    ],
)
def test_what_a_simulation_bills_is_known_by_its_usage_type(product: str, usage_type: str, line: InvoiceLine) -> None:
    assert line_of(product, usage_type, "Usage") == line
    assert line_of(product, usage_type, "EdpDiscount") == line


@pytest.mark.parametrize(
    ("product", "usage_type", "item_type", "name"),
    [
        ("AmazonEC2", "USE2-NatGateway-Hours", "Usage", "AmazonEC2 USE2-NatGateway-Hours"),
        ("AmazonEC2", "EBS:VolumeP-IOPS.io2", "Usage", "AmazonEC2 EBS:VolumeP-IOPS.io2"),
        ("AmazonEC2", "DataTransfer-Regional-Bytes", "Usage", "AmazonEC2 DataTransfer-Regional-Bytes"),
        ("AmazonS3", "DataTransfer-Out-Bytes", "Usage", "AmazonS3 DataTransfer-Out-Bytes"),
        ("AmazonSageMaker", "Train:ml.m5.xlarge", "Usage", "AmazonSageMaker Train:ml.m5.xlarge"),
        ("AWSQueueService", "Request", "Usage", "AWSQueueService Request"),
        ("AmazonEC2", "HeavyUsage:c5.large", "Fee", "AmazonEC2 HeavyUsage:c5.large Fee"),
        ("AmazonRDS", "HeavyUsage:db.r5.large", "RIFee", "AmazonRDS HeavyUsage:db.r5.large RIFee"),
        ("ComputeSavingsPlans", "ComputeSP:1yrAll", "SavingsPlanUpfrontFee",
         "ComputeSavingsPlans ComputeSP:1yrAll SavingsPlanUpfrontFee"),
        ("AmazonSageMaker", "Host:ml.c5.large", "SavingsPlanNegation",
         "AmazonSageMaker Host:ml.c5.large SavingsPlanNegation"),
        ("AmazonEC2", "BoxUsage:c5.large", "Tax", "tax"),
        ("AmazonEC2", "BoxUsage:c5.large", "Credit", "credit"),
        ("AmazonEC2", "BoxUsage:c5.large", "Refund", "refund"),
        ("AWSSupportBusiness", "Dollar", "Fee", "support"),
        ("AWS Support (Business)", "", "Usage", "support"),
        ("AWSDeveloperSupport", "Dollar", "Usage", "support"),
        ("AmazonEC2", "BoxUsage:c5.large", "Something", "AmazonEC2 BoxUsage:c5.large Something"),
    ],
)  # fmt: skip
def test_the_rest_is_a_line_of_its_own(product: str, usage_type: str, item_type: str, name: str) -> None:
    assert line_of(product, usage_type, item_type) == InvoiceLine(
        "", name, is_use=item_type == "Usage" and name != "support"
    )


@pytest.mark.parametrize(
    ("product", "item_type"),
    [
        ("AmazonEC2", "RIFee"),
        ("ComputeSavingsPlans", "SavingsPlanRecurringFee"),
        ("AmazonEC2", "SavingsPlanNegation"),
        ("AWSLambda", "SavingsPlanNegation"),
    ],
)
def test_a_commitment_is_one_line_with_its_discount(product: str, item_type: str) -> None:
    assert line_of(product, "BoxUsage:c5.large", item_type) == lines.COMMITMENTS


def test_names_cannot_write_to_a_terminal() -> None:
    assert line_of("AmazonEC2", "\x1b[31mNat", "Usage").name == "AmazonEC2 \ufffd[31mNat"
    assert line_of("AmazonEC2", "BoxUsage:\x1b[31m", "Usage").name == "\ufffd[31m"
