"""Where this code is: in a source tree, or installed; and the files of the project that lie elsewhere in the two."""

from __future__ import annotations

from pathlib import Path

from mark.domain.errors import MarkError


def checkout() -> Path | None:
    """The source tree that is imported; None: an installed package."""
    root = Path(__file__).parents[3]
    return root if (root / "pyproject.toml").is_file() and (root / "constraints.txt").is_file() else None


def terraform_modules() -> Path:
    """The folder with modules and the complete example."""
    return _shipped("terraform")


def boot_script() -> Path:
    """The template of an instance's user data."""
    return terraform_modules() / "modules" / "fleet" / "bouncer.sh.tftpl"


def deployer_policy() -> Path:
    """What the deployer needs of AWS, with places for site, region, account, partition and the state's bucket."""
    return _shipped("terraform/deployer-policy.json")


def constraints() -> Path:
    """Versions of everything that mark stands on: those with which it was tested, whatever is installed here."""
    return _shipped("constraints.txt")


def _shipped(name: str) -> Path:
    """In the package, or in the checkout beside it."""
    inside, root = Path(__file__).parents[1] / name, checkout()
    if not inside.exists() and root is not None:
        inside = root / name
    if not inside.exists():
        raise MarkError(f"this installation has no {name}: install mark-serving again")
    return inside
