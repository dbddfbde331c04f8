"""What an instance boots from: a root volume, its size by the image that the type needs, and its price."""

from __future__ import annotations

from mark.domain.offer import Market, Offer

# One root volume per instance: gp3 in us-east-1, EBS list price since its launch in 2020-12.
DISK_GIB = 8.0
DISK_USD_PER_GIB_MONTH = 0.08
GPU_DISKS = 12.5  # a GPU image needs 100 GiB, in disks of DISK_GIB
DISK_USD_PER_HOUR = DISK_GIB * DISK_USD_PER_GIB_MONTH / 730.0  # of DISK_GIB


def disks_of(offer: Offer) -> float:
    """In units of DISK_GIB, what an instance of the offer boots from: only types with GPUs need the GPU image's disk.

    SageMaker's have images of its own.
    """
    return GPU_DISKS if offer.gpus and offer.market is not Market.SAGEMAKER else 1.0


def disk_usd_per_hour(offer: Offer) -> float:
    """Of an instance of the offer, whether it runs or is stopped."""
    return disks_of(offer) * DISK_USD_PER_HOUR
