"""Keys in a parameter of Systems Manager, as programs that check callers read them while they run."""

from __future__ import annotations

from collections.abc import Callable

from mark.domain.errors import BadInput, DeniedError
from mark_infra.aws.gate import Gate
from mark_infra.aws.session import open_session
from mark_infra.aws.site import Site


class KeyParameter:
    """Version and text of the parameter `name`, whenever it is called. `gate` makes the way to AWS.

    It is made anew after a refusal: one made while the instance's metadata did not answer would never have credentials.
    """

    def __init__(self, name: str, gate: Callable[[], Gate]) -> None:
        self._name, self._make = name, gate
        self._gate: Gate | None = None

    def __call__(self) -> tuple[int, str]:
        """Raises CloudError."""
        self._gate = gate = self._gate or self._make()
        try:
            found = gate.call(gate.client("ssm").get_parameter, Name=self._name, WithDecryption=True)["Parameter"]
        except DeniedError:
            self._gate = None
            raise
        return int(found["Version"]), str(found["Value"])


def gate_here() -> Gate:
    """To the region of this process's environment. Raises BadInput where it names none."""
    session = open_session()
    if session.region_name is None:
        raise BadInput("say in which region of AWS the parameter is", "AWS_DEFAULT_REGION")
    return Gate(Site("mark", session.region_name, "dynamodb:none"), session=session)
