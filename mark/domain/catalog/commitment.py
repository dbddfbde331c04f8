"""Discounts of commitments on the on-demand price: dated and from one type, so only a default.

Standard reserved instances without upfront payment, Linux, us-east-1: m6a.xlarge at 0.1728 $/h on demand, 0.11431 for
one year, 0.07838 for three (Vantage's instances API, ec2instances.info, as captured on 2026-10-01). A copy of that list
of about 2020 (AjitTK/aws-emr-configuration) has c5.xlarge 37 % and p2.xlarge 32 % cheaper for one year.
"""

from __future__ import annotations

DISCOUNTS = {"1-year": 0.338, "3-year": 0.546}
SOURCE = "standard reserved instances, nothing upfront, m6a in us-east-1, ec2instances.info, 2026-10-01"
