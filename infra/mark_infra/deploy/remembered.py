"""The files besides Terraform's state that changing or ending a site needs, kept beside it in its bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mark_infra.aws.gate import Gate

VARIABLES = Path("terraform", "examples", "complete", "terraform.tfvars.json")
_FILES = (VARIABLES, Path("site.toml"))


def remember(gate: Gate, bucket: str, site: str, folder: Path) -> None:
    """Store the folder's files in the bucket. Raises CloudError."""
    s3 = gate.client("s3")
    for name in _FILES:
        if (folder / name).is_file():
            body = (folder / name).read_bytes()
            gate.call(s3.put_object, Bucket=bucket, Key=_key(site, name), Body=body)


def recall(gate: Gate, bucket: str, site: str, folder: Path) -> None:
    """Fetch the files that the folder lacks. Raises CloudError."""
    s3 = gate.client("s3")
    listed = gate.call(s3.list_objects_v2, Bucket=bucket, Prefix=f"mark/{site}/")
    there = {one["Key"] for one in listed.get("Contents", ())}
    for name in _FILES:
        if _key(site, name) in there and not (folder / name).is_file():
            body = gate.call(s3.get_object, Bucket=bucket, Key=_key(site, name))["Body"].read()
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(body)


def bucket_region(gate: Gate, bucket: str) -> str:
    """Return the region of a bucket, which may be another one than the gate's. Raises CloudError."""
    answer = gate.call(gate.client("s3").head_bucket, Bucket=bucket)
    return str(answer["ResponseMetadata"]["HTTPHeaders"]["x-amz-bucket-region"])


@contextmanager
def standing_in(folder: Path) -> Iterator[None]:
    """Provide each file that the variables name, because Terraform reads them even when it deletes.

    Files that were built on another machine are replaced by empty ones during the block.
    """
    made: list[Path] = []
    try:
        for name in _named(json.loads((folder / VARIABLES).read_text(encoding="utf-8"))):
            path = (folder / VARIABLES).parent / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                made.append(path)
        yield
    finally:
        for path in made:
            path.unlink(missing_ok=True)


def _named(variables: dict[str, Any]) -> Iterator[str]:
    for said in (variables, *variables.get("services", {}).values(), *variables.get("pipelines", {}).values()):
        yield from (said[name] for name in ("controller_wheels", "archive", "wheels") if name in said)
        if zipped := (said.get("function") or {}).get("zip"):
            yield zipped


def _key(site: str, name: Path) -> str:
    return f"mark/{site}/{name.name}"
