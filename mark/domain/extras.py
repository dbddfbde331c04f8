"""Which extra of the package brings an optional library, so that a missing one is one line with the way out."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from mark.domain.errors import BadInput

# By the name that is imported; `mark-serving` alone brings what `compare`, `plan` and `simulate` need.
_EXTRAS = {
    "aioboto3": "aws",
    "aiohttp": "aws",
    "boto3": "aws",
    "botocore": "aws",
    "fastapi": "serve",
    "google": "serve",
    "grpc": "serve",
    "httptools": "serve",
    "httpx": "serve",
    "joblib": "sklearn",
    "jwt": "serve",
    "moto": "testbed",
    "packaging": "aws",
    "pandas": "frames",
    "plotly": "report",
    "prometheus_client": "serve",
    "pyarrow": "parquet",
    "ray": "ray",
    "scipy": "personal",
    "sklearn": "sklearn",
    "starlette": "serve",
    "statsmodels": "arima",
    "torch": "torch",
    "urllib3": "serve",
    "usearch": "ann",
    "uvicorn": "serve",
    "uvloop": "serve",
}


def missing(error: ModuleNotFoundError, where: str) -> BadInput | None:
    """The refusal for a library that an extra brings; None for every other module, whose absence is a fault."""
    library = (error.name or "").split(".")[0]
    if library not in _EXTRAS:
        return None
    return BadInput(f"needs {library}: pip install 'mark-serving[{_EXTRAS[library]}]'", where)


def module_of(name: str, where: str) -> Any:
    """Import `name`, a module of an optional library. Raises BadInput where the library is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (refusal := missing(error, where)) is None:
            raise
        raise refusal from None


def check_installed(library: str, where: str) -> None:
    """Raise BadInput where `library` is not installed; it is looked for and not imported."""
    if find_spec(library) is None:
        raise BadInput(f"needs {library}: pip install 'mark-serving[{_EXTRAS[library]}]'", where)
