"""Map optional libraries to the extras of this package, to report a missing library in one line."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from mark.domain.errors import BadInput

# By import name. The libraries that `compare`, `plan` and `simulate` need are always installed.
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
    """Return the error for a missing library of an extra; None for any other module, whose absence is a bug."""
    library = (error.name or "").split(".")[0]
    if library not in _EXTRAS:
        return None
    return BadInput(f"needs {library} (pip install 'mark-serving[{_EXTRAS[library]}]')", where)


def module_of(name: str, where: str) -> Any:
    """Import `name`, a module of an optional library. Raises BadInput if the library is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (refusal := missing(error, where)) is None:
            raise
        raise refusal from None


def check_installed(library: str, where: str) -> None:
    """Raise BadInput if `library` is not installed. It is located but not imported."""
    if find_spec(library) is None:
        raise BadInput(f"needs {library} (pip install 'mark-serving[{_EXTRAS[library]}]')", where)
