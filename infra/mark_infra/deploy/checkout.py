"""Find the project's files, which lie elsewhere in a source tree than in an installed package."""

from __future__ import annotations

from pathlib import Path

from mark.domain.errors import MarkError


def checkout() -> Path | None:
    """Return the source tree of the imported code, or None for an installed package."""
    root = Path(__file__).parents[3]
    return root if (root / "pyproject.toml").is_file() and (root / "constraints.txt").is_file() else None


def terraform_modules() -> Path:
    """Return the folder with the modules and the complete example."""
    return _shipped("terraform")


def boot_script() -> Path:
    """Return the template of an instance's user data."""
    return terraform_modules() / "modules" / "fleet" / "bouncer.sh.tftpl"


def deployer_policy() -> Path:
    """Return the file of the deployer's permissions.

    It has placeholders for site, region, account, partition and the state's bucket.
    """
    return _shipped("terraform/deployer-policy.json")


def constraints() -> Path:
    """Return the constraints file: the tested versions of mark's dependencies, even if others are installed."""
    return _shipped("constraints.txt")


def _shipped(name: str) -> Path:
    """Return a file from the package, or from the checkout beside it."""
    inside, root = Path(__file__).parents[1] / name, checkout()
    if not inside.exists() and root is not None:
        inside = root / name
    if not inside.exists():
        raise MarkError(f"this installation has no {name}: install mark-serving again")
    return inside
