"""Stand-in for systemd in a bouncer's boot: runs mark.service, and a keeper for each worker that the service asks for.

The stand-in for systemctl starts it in the chroot of boot.py, with the system's Python, which has no package of ours.
"""

from __future__ import annotations

import os
import pwd
import shlex
import socket
import subprocess
import threading
import time
from pathlib import Path

UNITS = Path("/etc/systemd/system")
DOOR = "/run/mark-worker.socket"


def settings(name: str) -> dict[str, str]:
    """Return the settings of a unit; of a repeated setting, the last value."""
    text = (UNITS / name).read_text().replace("\\\n", "")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def started(unit: dict[str, str], **others: object) -> subprocess.Popen[bytes]:
    user = pwd.getpwnam(unit["User"])
    environment = dict(pair.split("=", 1) for pair in unit["Environment"].split())
    cache = Path(environment["MARK_CACHE_DIR"])
    cache.mkdir(exist_ok=True)
    os.chown(cache, user.pw_uid, user.pw_gid)
    environment |= {"PATH": os.environ["PATH"], "AWS_EC2_METADATA_DISABLED": "true"}
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        shlex.split(unit["ExecStart"]),
        cwd=unit["WorkingDirectory"],
        env=environment,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        **others,
    )


def keep() -> None:
    """Start a keeper for each connection, as Accept=yes does."""
    unit = settings("mark-worker@.service")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(DOOR)
        os.chown(DOOR, pwd.getpwnam("mark").pw_uid, -1)
        os.chmod(DOOR, 0o600)
        door.listen(64)
        while True:
            connection, _ = door.accept()
            with connection:
                keeper = started(unit, stdin=connection, stdout=subprocess.DEVNULL)
            threading.Thread(target=keeper.wait, daemon=True).start()


def main() -> None:
    threading.Thread(target=keep, daemon=True).start()
    while not Path(DOOR).exists():
        time.sleep(0.01)
    unit = settings("mark.service")
    log = Path(unit["StandardError"].removeprefix("append:"))
    for restarts in range(1, 1_000_000):
        with log.open("ab") as errors:
            started(unit, stderr=errors).wait()
        Path("/store/restarts").write_text(f"{restarts}\n")
        time.sleep(float(unit["RestartSec"]))


if __name__ == "__main__":
    main()
