"""The settings of personal heads for the data plane. It does not import numpy, as services without heads import it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mark.domain.pipeline import Pipeline
from mark.personal.settings import PersonalSettings

if TYPE_CHECKING:
    from mark.personal.table import ItemTable


@dataclass(frozen=True, slots=True)
class PersonalServing:
    """The head of a pipeline. `version` is the version of the items' vectors, from a `table` or from `features`.

    `features` is the graph of the features stage and of the stages before it.
    """

    settings: PersonalSettings
    version: str
    table: ItemTable | None = None
    features: Pipeline | None = None
