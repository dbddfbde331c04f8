"""AWS's services by their names in Cost Explorer and on invoices, as the product codes of cost and usage reports."""

from __future__ import annotations

import re

_PRODUCTS = {
    "Amazon Elastic Compute Cloud": "AmazonEC2",
    "Amazon Elastic Compute Cloud - Compute": "AmazonEC2",
    "EC2-Instances": "AmazonEC2",
    "EC2 - Other": "AmazonEC2",
    "EC2-Other": "AmazonEC2",
    "AWS Lambda": "AWSLambda",
    "Amazon SageMaker": "AmazonSageMaker",
    "Elastic Load Balancing": "AWSELB",
    "Amazon Elastic Load Balancing": "AWSELB",
    "Amazon Virtual Private Cloud": "AmazonVPC",
    "AWS Data Transfer": "AWSDataTransfer",
    "Savings Plans for AWS Compute usage": "ComputeSavingsPlans",
    "Savings Plans for AWS Machine Learning": "MachineLearningSavingsPlans",
}
_OF_EC2 = re.compile(r"([A-Z]{2,4}\d*-)*(BoxUsage|SpotUsage|HeavyUsage|DataTransfer-Out-Bytes)(:.*)?")


def product_of(service: str, usage_type: str = "") -> str:
    """Return the product code, or the name if the code does not matter here.

    Without a name the usage type decides: only one service has hours of instances.
    """
    if not service:
        return "AmazonEC2" if _OF_EC2.fullmatch(usage_type) else ""
    return _PRODUCTS.get(service, service)
