"""A site's addresses are chosen once."""

from __future__ import annotations

import re

import pytest
from mark_infra.deploy.addresses import DEFAULT, addresses, zone_numbers

from mark.domain.errors import BadInput
from tests.terraform.conftest import MODULES


@pytest.mark.parametrize("wanted", [None, "10.7.0.0/16", "172.20.0.0/16", "192.168.0.0/16"])
def test_a_new_site_has_what_is_wanted(wanted: str | None) -> None:
    assert addresses(wanted, {}) == (wanted or DEFAULT)


@pytest.mark.parametrize("wanted", [None, "10.7.0.0/16"])
def test_a_site_keeps_them_unsaid(wanted: str | None) -> None:
    assert addresses(wanted, {"cidr": "10.7.0.0/16"}) == "10.7.0.0/16"


def test_a_site_of_before_has_the_default() -> None:
    assert addresses(None, {"site_toml": ""}) == DEFAULT


@pytest.mark.parametrize("outputs", [{"cidr": "10.7.0.0/16"}, {"site_toml": ""}])
def test_others_would_make_all_anew(outputs: dict[str, str]) -> None:
    with pytest.raises(BadInput, match=r"cidr.*10\.8\.0\.0/16|10\.8\.0\.0/16"):
        addresses("10.8.0.0/16", outputs)


@pytest.mark.parametrize("wanted", ["10.7.0.0/24", "10.7.1.0/16", "8.8.0.0/16", "fd00::/16", "here", ""])
def test_what_cannot_be_a_sites_is_refused(wanted: str) -> None:
    with pytest.raises(BadInput, match="cidr"):
        addresses(wanted, {})


def test_zones_keep_their_numbers() -> None:
    assert zone_numbers({}) == {}
    # of a site that was deployed before numbers were kept
    assert zone_numbers({"zones": ["b", "a"]}) == {"b": 0, "a": 1}
    assert zone_numbers({"zones": ["b"], "zone_numbers": {"a": 0, "b": 1.0}}) == {"a": 0, "b": 1}


def test_the_module_has_the_same_default() -> None:
    text = (MODULES / "modules" / "network" / "variables.tf").read_text(encoding="utf-8")
    assert re.search(rf'variable "cidr" \{{[^}}]*default *= "{re.escape(DEFAULT)}"', text)
