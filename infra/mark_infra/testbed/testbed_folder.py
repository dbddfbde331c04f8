"""The files in a testbed's folder, for its daemon and its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SETTINGS = "settings.json"  # the options of `mark testbed up`: `TestbedSettings`
DAEMON = "daemon.json"  # process id, control server with its token (readable by the owner only), AWS's endpoint
SITE = "mark-site.toml"
LOGS = "logs"


@dataclass(frozen=True, slots=True)
class TestbedSettings:
    """The options of `mark testbed up`. Files are absolute paths; `capacity` is by offer.

    `spot_shares` and `spot_prices`: steps (control second, share) by zone, as in `LocalCloud`.
    """

    services: Sequence[str]
    seed: int = 0
    time_scale: float = 1.0
    controllers: int = 1
    controller_port: int = 0
    options: Sequence[str] = ()  # of `mark controller`
    bouncer_options: Sequence[str] = ()  # of `mark serve`
    capacity: Mapping[str, int] | None = None
    spot_shares: Mapping[str, Sequence[tuple[float, float]]] | None = None
    spot_prices: Mapping[str, Sequence[tuple[float, float]]] | None = None
    faults: str | None = None  # the file of `--faults`
    account: str = "generous"  # `mark_infra.testbed.account`
    scps: Sequence[str] = ()
