"""Run a bouncer's user data with the disk and memory of an instance: on a bare image, then on the image made from it.

    sudo .venv/bin/python benchmarks/data_plane/boot.py [--only NAME] [--system-mib 192] [--out out/boot]

Root on Linux only, x86-64. Each case is an ext4 file system in a file, as large as mark deploy makes the disk, over
this machine's own programs (overlayfs; 1.7 GiB of it is taken, as by Amazon's image); /tmp is a tmpfs of half the
type's memory. A cgroup limits memory to the type's memory less --system-mib, an assumed amount for the kernel, the
system and cloud-init. The user data is rendered as Terraform does it and runs in a chroot with separate namespaces.
Stand-ins replace the AWS CLI, the instance metadata and systemd (boot_units.py). Users, pip, mark serve and its workers
are real. Once the bouncer is ready, it gets one request. CPUs are this machine's, and S3 is a folder, so the seconds
contain no network time.

Writes OUT.json and OUT.md. Exits with 1 if a boot failed, with 2 if this machine lacks something.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from mark_infra.deploy.artifacts import archive, size_of  # noqa: E402
from mark_infra.deploy.checkout import constraints  # noqa: E402
from mark_infra.deploy.disk import AL2023_USED_GIB, GIB, disk_gib  # noqa: E402
from mark_infra.deploy.own_wheel import wheel  # noqa: E402
from mark_infra.deploy.shipments import shipment  # noqa: E402
from mark_infra.deploy.wheelhouse import PackagesWanted, wheelhouse  # noqa: E402

from mark.domain.errors import MarkError  # noqa: E402
from tests.terraform.booting import (  # noqa: E402
    AWS_PROGRAMS,
    BOUNCER,
    BOUNCER_VALUES,
    KEY,
    METADATA,
    artifact,
    rendered,
    write_programs,
)

MIB = 1024**2
CGROUPS = Path("/sys/fs/cgroup")
TYPE = "c6i.large"  # is in the examples' profiles and has two processors, as small t3 types have
PYTHON = "/usr/bin/python3.11"  # path in the chroot; Amazon's image has it from dnf
PROGRAMS = AWS_PROGRAMS | {
    "curl": METADATA + '  *) exec /usr/bin/curl "$@" ;;\nesac',
    "systemctl": f"""
case "$*" in
  "restart mark.service") setsid {PYTHON} -S /store/boot_units.py >>/store/units.log 2>&1 & ;;
  show*) cat /store/restarts 2>/dev/null || echo 0 ;;
esac
""",
}
# The first process of the instance. It prints the time from its start to the end of user data, and the exit status.
FIRST = """
begun=$(date +%s%N)
bash /store/user-data >/var/log/cloud-init-output.log 2>&1
status=$?
echo "$status $(( ($(date +%s%N) - begun) / 1000000 ))" >/store/ended
[ "$status" = 0 ] || exit "$status"
/usr/bin/curl -sf -m 30 -H 'Authorization: Bearer KEY' -d @/store/request -o /store/answer http://127.0.0.1:8080/v2/models/NAME/infer
"""


@dataclass(frozen=True)
class Case:
    name: str
    service: str
    memory_gib: float
    tensor: dict[str, object]
    requirements: str = ""


WORDS = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a friendly text"]}
PIXELS = {"name": "pixels", "shape": [1, 3, 16, 16], "datatype": "FP32", "data": [0.5] * 768}
CASES = (
    Case("words, 0.5 GiB", "words", 0.5, WORDS),
    Case("words, 2 GiB", "words", 2.0, WORDS),
    Case("torch, 4 GiB", "image", 4.0, PIXELS, "torch==2.13.0\n"),
)


@dataclass
class Boot:
    """The result of one boot."""

    case: str
    start: str
    disk_gib: int
    memory_mib: int
    ready: bool
    answered: bool
    seconds: float
    installed_mb: float
    peak_memory_mb: float
    tmp_mb: float
    peak_disk_mb: float
    disk_mb: float
    killed: int
    said: list[str] = field(default_factory=list)

    def row(self) -> str:
        how = "yes" if self.answered else "ready only" if self.ready else "**no**"
        measured = (self.seconds, self.installed_mb, self.peak_memory_mb, self.tmp_mb, self.disk_mb, self.peak_disk_mb)
        seconds, *sizes = measured
        figures = " | ".join(f"{size:,.0f}" for size in sizes)
        bounds = f"{self.disk_gib} GiB, {self.memory_mib} MiB"
        return f"| {self.case} | {self.start} | {bounds} | {how} | {seconds:.1f} | {figures} |"


COLUMNS = (
    *("", "start", "disk, memory", "answers", "s"),
    *("MB installed", "MB memory, peak", "of that in /tmp", "MB on the disk", "peak"),
)
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


class Memory:
    """A cgroup with a limit (version 2, or 1), and the highest use while it is watched."""

    def __init__(self, limit: int) -> None:
        self.second = (CGROUPS / "cgroup.controllers").is_file()
        self.folder = (CGROUPS if self.second else CGROUPS / "memory") / f"mark-boot-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / ("memory.max" if self.second else "memory.limit_in_bytes")).write_text(str(limit))
        self.peak = self.tmp = 0
        self._ended = threading.Event()

    def watch(self, disk: Path) -> int:
        """Watch until `end`; return the highest use of the disk in bytes.

        `peak` and `tmp` get the highest use of memory, without page cache, and of /tmp.
        """
        most = 0
        while not self._ended.wait(0.05):
            stat = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
            tmp = int(stat["shmem"])
            self.tmp = max(self.tmp, tmp)
            self.peak = max(self.peak, int(stat["anon" if self.second else "rss"]) + tmp)
            most = max(most, used(disk))
        return most

    def killed(self) -> int:
        name = "memory.events" if self.second else "memory.oom_control"
        return int(dict(line.split() for line in (self.folder / name).read_text().splitlines())["oom_kill"])

    def end(self) -> None:
        self._ended.set()

    def remove(self) -> None:
        for _ in range(100):
            try:
                self.folder.rmdir()
                return
            except OSError:  # a process has not fully ended
                time.sleep(0.1)


def used(disk: Path) -> int:
    stat = os.statvfs(disk)
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


def called(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    """Yield the disk, and this machine's programs over which it lies: the root of the instance."""
    disk, root = folder / "disk", folder / "root"
    for made in (disk, root):
        made.mkdir(exist_ok=True)
    called("mount", "-o", "loop", image, disk)
    try:
        for made in (disk / "upper", disk / "work"):
            made.mkdir(exist_ok=True)
        called("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={disk}/upper,workdir={disk}/work", root)
        try:
            yield root
        finally:
            called("umount", "-R", root)
    finally:
        called("umount", disk)


class Bench:
    def __init__(self, case: Case, folder: Path, system_mib: int, built: Path) -> None:
        self.case, self.folder, self.store = case, folder, folder / "store"
        sent = shipment(str(ROOT / "examples" / "testbed" / f"{case.service}.toml"))
        files = sent.files | ({"requirements.txt": case.requirements.encode()} if case.requirements else {})
        packages = wheelhouse(PackagesWanted(case.service, files), wheel(built), constraints(), built / "wheels")
        packed = archive(files, built / f"{case.service}.tar.gz")
        self.disk_gib = disk_gib(case.name, packages, packed.stat().st_size, size_of(files), gpus=False, limit=None)
        self.memory = int(case.memory_gib * GIB) - system_mib * MIB
        self.store.mkdir()
        (self.store / "keys").write_text(f"operator:{KEY}:admin\n")
        (self.store / "request").write_text(json.dumps({"inputs": [case.tensor]}))
        (self.store / "first").write_text(FIRST.replace("KEY", KEY).replace("NAME", case.service))
        shutil.copy(Path(__file__).with_name("boot_units.py"), self.store)
        write_programs(PROGRAMS, self.store / "bin")
        values = BOUNCER_VALUES | {"service": case.service, "scheme": "http"}  # handshakes are not measured
        for kind, file in {"archive": packed, "wheels": packages.file}.items():
            values |= artifact(self.store, kind, f"artifacts/{kind}/{case.service}", file, "v1")
        (self.store / "user-data").write_text(rendered(BOUNCER, values))
        self.image = folder / "disk.img"
        with self.image.open("wb") as file:
            file.truncate(self.disk_gib * GIB)
        called("mkfs.ext4", "-q", self.image)
        with mounted(self.image, folder):
            called("fallocate", "-l", int(AL2023_USED_GIB * GIB), folder / "disk" / "image")

    def boot(self, start: str) -> Boot:
        (self.store / "instance-id").write_text(f"i-{start}")
        for name in ("ended", "answer", "restarts"):
            (self.store / name).unlink(missing_ok=True)
        memory = Memory(self.memory)
        try:
            with mounted(self.image, self.folder) as root:
                return self._measured(start, root, memory)
        finally:
            memory.remove()

    def _measured(self, start: str, root: Path, memory: Memory) -> Boot:
        disk, most = self.folder / "disk", list[int]()
        watching = threading.Thread(target=lambda: most.append(memory.watch(disk)))
        watching.start()
        try:
            self._run(root, memory)
        finally:
            memory.end()
            watching.join()
        ended, answer = self.store / "ended", self.store / "answer"
        status, milliseconds = map(int, ended.read_text().split()) if ended.is_file() else (1, 0)
        found = Boot(
            self.case.name, start, self.disk_gib, self.memory // MIB, status == 0, answer.is_file(), milliseconds / 1e3,
            allocated(root / "opt/mark/venv") / 1e6, memory.peak / 1e6, memory.tmp / 1e6, most[0] / 1e6,
            used(disk) / 1e6, memory.killed(),
        )  # fmt: skip
        if not found.answered:
            logs = [root / "var/log/cloud-init-output.log", root / "var/log/mark/serve.log", self.store / "units.log"]
            found.said = [line for log in logs if log.is_file() for line in log.read_text().splitlines()[-5:]]
        elif len(json.loads(answer.read_text())["outputs"]) != 1:
            raise AssertionError(answer.read_text())
        return found

    def _run(self, root: Path, memory: Memory) -> None:
        tmp_mib = self.case.memory_gib * 1024 / 2
        script = f"""
echo $$ >'{memory.folder}/cgroup.procs'
exec unshare --mount --net --pid --fork --kill-child bash -ec '
  ip link set lo up
  mount -t proc proc {root}/proc
  mount --bind /dev {root}/dev
  mount -t tmpfs -o size={tmp_mib:.0f}m,mode=1777 tmpfs {root}/tmp
  mount -t tmpfs -o mode=755 tmpfs {root}/run
  mkdir -p {root}/store
  mount --bind {self.store} {root}/store
  cd {root}
  exec env -i PATH=/store/bin:/usr/sbin:/usr/bin:/sbin:/bin STORE=/store HOME=/root TYPE={TYPE} \\
    PIP_CONFIG_FILE=/dev/null chroot {root} bash /store/first'
"""
        subprocess.run(["bash", "-c", script], timeout=900, stdin=subprocess.DEVNULL)


def allocated(folder: Path) -> int:
    """Return bytes of its files on the disk."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*")) if folder.is_dir() else 0


def missing(folder: Path) -> Iterator[str]:
    """Yield the things that this machine lacks."""
    if os.geteuid() != 0 or platform.system() != "Linux" or platform.machine() != "x86_64":
        yield "root on Linux, x86-64"
        return
    yield from (name for name in ("unshare", "chroot", "mkfs.ext4", "ip", "curl", PYTHON) if not shutil.which(name))
    try:
        memory = Memory(64 * MIB)
        memory.remove()
    except OSError as error:
        yield f"a cgroup with a limit of memory: {error}"
    image = folder / "try.img"
    with image.open("wb") as file:
        file.truncate(16 * MIB)
    try:
        called("mkfs.ext4", "-q", image)
        with mounted(image, folder):
            pass
    except (OSError, subprocess.CalledProcessError) as error:
        yield f"loop devices and overlayfs: {getattr(error, 'stderr', None) or error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAME", help="run only cases whose name contains NAME")
    parser.add_argument("--system-mib", type=int, default=192, help="MiB of memory that kernel and system take")
    parser.add_argument("--out", type=Path, default=Path("out/boot"))
    args = parser.parse_args()
    if os.environ.get("BOOT_BENCH_INSIDE") is None and os.geteuid() == 0 and shutil.which("unshare"):
        # This process has its own mount namespace, so that a failure leaves no mount behind.
        os.environ["BOOT_BENCH_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that mounts and cgroups are removed then, too
    # /tmp may be in memory.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as work:
        if lacking := list(missing(Path(work))):
            print(f"this machine lacks: {'; '.join(lacking)}", file=sys.stderr)
            return 2
        boots: list[Boot] = []
        for number, case in enumerate(case for case in CASES if args.only in case.name):
            folder = Path(work, str(number))
            folder.mkdir()
            try:
                bench = Bench(case, folder, args.system_mib, Path(work, "built"))
            except MarkError as error:
                print(f"no index of packages can be reached: {error}", file=sys.stderr)
                return 2
            for start in ("bare", "baked"):
                boots.append(bench.boot(start))
                print(boots[-1].row(), *boots[-1].said, sep="\n  ", flush=True)
            bench.image.unlink()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".json").write_text(json.dumps([asdict(boot) for boot in boots], indent=2) + "\n")
    args.out.with_suffix(".md").write_text("\n".join([HEAD, *(boot.row() for boot in boots)]) + "\n")
    return 0 if all(boot.answered for boot in boots) else 1


if __name__ == "__main__":
    sys.exit(main())
