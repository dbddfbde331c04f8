"""Loopback addresses of instances: a network of 127/8 for each cloud on this machine."""

from __future__ import annotations

import socket

_FIRST, _LAST = 77, 254
_CLAIM_PORT = 47_113
_MOST = 65_500


class Addresses:
    """Distinct addresses 127.x.a.b. A listening socket claims the network x until the process ends."""

    def __init__(self) -> None:
        for network in range(_FIRST, _LAST + 1):
            claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                claim.bind((f"127.{network}.0.1", _CLAIM_PORT))
                claim.listen(1)
            except OSError:
                claim.close()
                continue
            self.network, self._claim, self._given = network, claim, 0
            return
        raise OSError("no loopback network is left for instances: all of 127.77 to 127.254 are taken")

    def next(self) -> str:
        """Return an unused address; after 65,500 of them the first ones are reused."""
        number = self._given % _MOST + 2
        self._given += 1
        return f"127.{self.network}.{number >> 8}.{number & 255}"

    def close(self) -> None:
        """Release the network."""
        self._claim.close()
