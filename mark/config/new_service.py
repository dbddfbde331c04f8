"""`mark init`: a commented service file to begin with, from a profile, a model and a promise.

The text is a shipped service's, line by line, so that every key is explained at its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from mark.config.fleet import check_name
from mark.config.service_file import SERVICE_NAMES, shipped_text
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput, did_you_mean
from mark.domain.function_offer import EVERY_ARM64_FUNCTION, EVERY_FUNCTION, is_function, sizes_among
from mark.domain.offer import Market
from mark.domain.profile import Profile

CATALOG = "aws-2026"


_SPOT = ["on-demand", "spot"]
_RISK = """# The default is ["on-demand"]. Spot costs a third to a half, and AWS takes it back when it likes, with two
# minutes' notice: some requests may come late, though mark has others ready or answers with functions.
"""


def new_service(name: str, slo_ms: float | None = None) -> str:
    """Return a commented service file: the shipped one of that name, otherwise today's Inception-v3 under the name.

    `slo_ms` replaces the promise. Raises BadInput for a name that cannot be a tag.
    """
    changed: dict[str, object] = {} if slo_ms is None else {"slo_ms": slo_ms}
    if name in SERVICE_NAMES:
        return _with(shipped_text(name), changed)
    check_name(name, "service name")
    return _with_spot(_with(shipped_text(SERVICE_NAMES[0]), {"name": name, **changed}))


def new_service_of(
    name: str,
    profiles: Mapping[str, Mapping[str, Profile]],
    profile_file: str,
    slo_ms: float,
    model: str | None = None,
    registered: str | None = None,
) -> str:
    """Return a commented service file of a profiled model that may buy the measured types and promises `slo_ms`.

    `profiles` are the content of `profile_file`, whose name goes into the text, unless the model is `registered` under
    a reference, which goes into the text then. Raises BadInput if the profile lacks the model, has several without a
    given `model`, or only types that are not sold.
    """
    check_name(name, "service name")
    if model is None and len(profiles) > 1:
        raise BadInput(f"has several models ({', '.join(profiles)}): name one with --model", profile_file)
    found = next(iter(profiles)) if model is None else model
    if found not in profiles:
        hint = did_you_mean(found, profiles) or f"; it has {', '.join(profiles)}"
        raise BadInput(f"no profile of the model{hint}", profile_file, found)
    by_type = profiles[found]
    sold = {
        offer.instance
        for offer in load_catalog(CATALOG).offers
        if offer.market is Market.ON_DEMAND and not offer.retired
    }
    types = [instance for instance in by_type if instance in sold]
    if not types:
        what = f"no type that {CATALOG} sells: measure with `mark profile {found} --instance TYPE --out {profile_file}`"
        raise BadInput(what, profile_file, ", ".join(by_type))
    fastest_s = min(by_type[instance].latency_s(1) for instance in types)
    if fastest_s * 1e3 > slo_ms:
        raise BadInput(f"one request alone takes {fastest_s * 1e3:.3g} ms on the fastest type", "slo_ms", f"{slo_ms:g}")
    functions = [instance for instance in by_type if is_function(instance)]
    kinds = [every for every in (EVERY_FUNCTION, EVERY_ARM64_FUNCTION) if sizes_among(every, functions)]
    chosen = functions if len(functions) == 1 else kinds or ["none"]
    text = _with(
        shipped_text(SERVICE_NAMES[0]),
        {
            "name": name,
            "model": registered or found,
            "slo_ms": slo_ms,
            **({} if registered else {"profile": profile_file}),
            "instances": types,
            "function": chosen[0] if len(chosen) == 1 else chosen,
        },
    )
    first = text.split("\n", 1)[0]
    text = text.replace(
        first, f"# {name}: {found} as measured {'for the registry' if registered else f'in {profile_file}'}.", 1
    )
    return _with_spot(text.replace('"c7i.xlarge"', json.dumps(types[0])))


def _with_spot(text: str) -> str:
    """Allow spot, which saves most, and explain its risk beside the setting."""
    text = _with(text, {"markets": _SPOT})
    line = next(line for line in text.splitlines(keepends=True) if line.startswith("markets = "))
    return text.replace(line, line + _RISK, 1)


def _with(text: str, values: Mapping[str, object]) -> str:
    """Return `text` with these keys set, also keys that stand in a comment; remarks at the end of a line stay."""
    for key, value in values.items():
        written = f"{key} = {f'{value:g}' if isinstance(value, float) else json.dumps(value)}"
        pattern = rf"^(?:# )?{key} = (?:\"[^\"]*\"|\[[^\]]*\]|[^ \n]+) *(#.*)?$"
        found = re.search(pattern, text, re.MULTILINE)
        assert found is not None, key
        line = f"{written:<38} {found[1]}" if found[1] else written
        text = text[: found.start()] + line + text[found.end() :]
    return text
