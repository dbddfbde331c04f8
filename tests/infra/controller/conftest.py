"""The market of the adapters' tests, around a moto of this folder's own."""

from tests.infra.aws.conftest import place

__all__ = ["place"]
