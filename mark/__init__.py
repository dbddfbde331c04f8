"""mark: serve models at the lowest bill that still keeps a latency promise."""

from typing import TYPE_CHECKING, Any

from mark.domain.version import VERSION as __version__

if TYPE_CHECKING:
    from mark.models.driver import StageModels, pipeline
    from mark.models.model import Model, TensorSpec, model
    from mark.models.registry_place import open_registry
    from mark.sdk.personal_client import PersonalClient
    from mark.sdk.registry import register
    from mark.sdk.report import report
    from mark.sdk.service import Service

__all__ = [
    "Model", "PersonalClient", "Service", "StageModels", "TensorSpec", "__version__", "model", "open_registry",
    "pipeline", "register", "report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a name for model authors on first use: `import mark` takes 0.02 s, with `Service` 0.5 s."""
    if name == "Service":
        from mark.sdk.service import Service

        return Service
    if name in ("Model", "TensorSpec", "model"):
        from mark.models import model as home

        return getattr(home, name)
    if name in ("StageModels", "pipeline"):
        from mark.models import driver

        return getattr(driver, name)
    if name == "PersonalClient":
        from mark.sdk.personal_client import PersonalClient

        return PersonalClient
    if name == "register":
        from mark.sdk.registry import register

        return register
    if name == "report":
        from mark.sdk.report import report

        return report
    if name == "open_registry":
        from mark.models.registry_place import open_registry

        return open_registry
    raise AttributeError(f"module 'mark' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names for completion, including those not imported yet."""
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING"})
