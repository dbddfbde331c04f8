"""Sections of a service file that installed packages read: each adds a layer before the model (`mark.serving.layers`).

The entry point group `mark.layers` names the sections. The registered function takes its `Section`, raises BadInput for
a bad one, and returns the layer. Its module is imported by every reader of the file, so it should import little.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from mark.config import plugins
from mark.config.section import Section, check_sections
from mark.domain.errors import BadInput
from mark.domain.service import LayerSection

GROUP = "mark.layers"


def layers_of(path: Path, tables: Mapping[str, Any], known: Mapping[str, Collection[str]]) -> tuple[LayerSection, ...]:
    """Return the layers of a file, in its order, after a check of all sections. `known` are mark's. Raises BadInput."""
    others = [name for name in tables if name not in known]
    registered = plugins.found(GROUP) if others else ()
    own = {name: table for name, table in tables.items() if name not in registered}
    check_sections(path, own, {**known, **dict.fromkeys(registered, ())})
    layers = [LayerSection(name, tables[name], str(path)) for name in others]
    opened(layers)
    return tuple(layers)


def opened(layers: Sequence[LayerSection]) -> list[Any]:
    """Return the layers that the sections describe (`mark.serving.layers.layer.Layer`). Raises BadInput."""
    found = []
    for one in layers:
        if not isinstance(one.settings, dict):
            raise BadInput("must be a section", f"{one.source} {one.name}", one.settings)
        found.append(plugins.load(GROUP, one.name, "layer")(Section(Path(one.source), one.name, one.settings)))
    return found
