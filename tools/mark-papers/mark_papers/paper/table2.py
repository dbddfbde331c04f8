"""The paper's Table 2: dollars per million requests on an instance, in a container and on a function.

Instance and function come from catalogue and profile. mark does not buy containers: their times are the paper's
figures, their price is Fargate's of 2018 (0.0506 $ per vCPU-hour, 0.0127 $ per GB-hour), which fits the paper's
dollars.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mark.domain.errors import BadInput
from mark.domain.offer import Catalog, Market
from mark.domain.profile import Profile

MODELS = ("inception-v3", "inception-resnet-v2", "opennmt-ende")
INSTANCE, FUNCTION, FUNCTION_AS_PAPER = "c5.large", "lambda:3008", "lambda:3008 as the paper counts"
CONTAINER = "ECS, 2 vCPU, 4 GB"
CONTAINER_USD_PER_HOUR = 2 * 0.0506 + 4 * 0.0127
CONTAINER_MS = {"inception-v3": 217.0, "inception-resnet-v2": 411.0, "opennmt-ende": 2280.0}


class Table2Row(NamedTuple):
    model: str
    resource: str
    usd_per_million: float
    latency_ms: float


def table2_rows(catalog: Catalog, profiles: Mapping[str, Mapping[str, Profile]]) -> list[Table2Row]:
    """Return for each model c5.large on demand and a container, each busy with single requests, and the function twice.

    The bill of a function call is its time rounded up to the billing step, at 3,008 of 1,024 MB, plus the charge per
    call. The paper's figures are mean time x 3 GB x price, without rounding and charge; the second row of the function
    follows them. Raises BadInput when catalogue or profile lack c5.large on demand or lambda:3008.
    """
    offer = next((o for o in catalog.offers if o.instance == INSTANCE and o.market is Market.ON_DEMAND), None)
    if offer is None:
        raise BadInput("the catalogue has no such offer on demand", catalog.name, INSTANCE)
    function = catalog.function(FUNCTION)
    rows: list[Table2Row] = []
    for model in MODELS:
        of_model = profiles.get(model, {})
        for name in (INSTANCE, FUNCTION):
            if name not in of_model:
                raise BadInput("the profile has no row for Table 2", model, name)
        instance_s, function_s = of_model[INSTANCE].latency_s(1), of_model[FUNCTION].latency_s(1)
        as_paper_usd = function_s * 3.0 * function.usd_per_gb_second
        rows += [
            Table2Row(model, INSTANCE, offer.usd_per_s * instance_s * 1e6, instance_s * 1e3),
            Table2Row(model, CONTAINER, CONTAINER_USD_PER_HOUR / 3.6 * CONTAINER_MS[model], CONTAINER_MS[model]),
            Table2Row(model, FUNCTION, function.usd_per_request(function_s) * 1e6, function_s * 1e3),
            Table2Row(model, FUNCTION_AS_PAPER, as_paper_usd * 1e6, function_s * 1e3),
        ]
    return rows
