"""The environment variables of the testbed's processes."""

from __future__ import annotations

from collections.abc import Mapping


def of_aws(environment: Mapping[str, str], region: str) -> dict[str, str]:
    """Return these variables without AWS settings and proxies, and with worthless credentials."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith("AWS_") and not name.lower().endswith("_proxy")
    }
    return kept | {
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
    }
