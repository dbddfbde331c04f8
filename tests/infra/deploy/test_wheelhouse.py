"""A bouncer's packages, resolved for its processor before it exists."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from mark_infra.deploy import wheelhouse as module
from mark_infra.deploy.checkout import constraints
from mark_infra.deploy.wheelhouse import BOUNCER, LOCK, PackagesWanted, _ranges, wheelhouse
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mark.domain.errors import BadInput, MarkError
from tests.infra.deploy.made_wheels import make_wheel, only_from


class Index:
    """A folder of wheels as the only index; mark's own wheel; our pins."""

    def __init__(self, folder: Path) -> None:
        self.wheels, self.built = folder / "index", folder / "built"
        self.own = make_wheel(folder, "mark-serving", "0.1.0", ["numpy>=2", "numba>=1", "orjson>=3; extra == 'serve'"])
        self.pins = folder / "constraints.txt"
        self.pins.write_text("numpy==2.4\norjson==3.1\nscikit-learn==1.9\n")
        for name, version in (("numpy", "2.4"), ("numpy", "2.3"), ("orjson", "3.1"), ("orjson", "3.2")):
            self.add(name, version)

    def add(self, name: str, version: str = "1.0", *needs: str, tag: str = "py3-none-any") -> None:
        make_wheel(self.wheels, name, version, needs, tag)

    def resolve(self, requirements: str | None = None, **wanted: object) -> dict[str, str]:
        """Return versions by name, as an instance would install them."""
        files: dict[str, Path | bytes] = {} if requirements is None else {"requirements.txt": requirements.encode()}
        asked = PackagesWanted("echo", files | wanted.pop("files", {}), **wanted)  # type: ignore[arg-type,operator]
        made = wheelhouse(asked, self.own, self.pins, self.built / "wheels")
        assert made.file == self.built / "echo-wheels.tar"
        with tarfile.open(made.file) as tar:
            held = {name: tar.extractfile(name).read() for name in tar.getnames()}
        lines = held.pop(LOCK).decode().splitlines()
        hashes = {hashlib.sha256(content).hexdigest() for content in held.values()}
        assert {line.rpartition(":")[2] for line in lines} == hashes
        return dict(re.fullmatch(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}", line).groups() for line in lines)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    made = Index(tmp_path)
    only_from(made.wheels, monkeypatch)
    monkeypatch.setattr(module, "BOUNCER", ("numpy", "orjson"))
    return made


def test_a_bouncer_has_its_own_needs_and_no_solver(index: Index, tmp_path: Path) -> None:
    """mark's wheel may be compiled here if the instance has the same processor."""
    needs = ["numpy>=2", "numba>=1", "orjson>=3; extra == 'serve'"]
    index.own = make_wheel(tmp_path, "mark-serving", "0.1.0", needs, tag="cp311-cp311-linux_x86_64")
    assert index.resolve() == {"mark-serving": "0.1.0", "numpy": "2.4", "orjson": "3.1"}


@pytest.mark.slow
def test_the_same_again_asks_no_index(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = index.resolve("orjson\n")
    content = (index.built / "echo-wheels.tar").read_bytes()
    only_from(tmp_path / "gone", monkeypatch)
    assert index.resolve("orjson\n") == first
    assert (index.built / "echo-wheels.tar").read_bytes() == content


@pytest.mark.slow
def test_a_model_gets_the_release_that_it_names(index: Index) -> None:
    index.add("scikit-learn", "1.7", "joblib")
    index.add("scikit-learn", "1.9", "joblib")
    index.add("joblib")
    found = index.resolve("scikit-learn==1.7\n")
    assert (found["scikit-learn"], found["numpy"], found["joblib"]) == ("1.7", "2.4", "1.0")
    assert index.resolve(kinds=("scikit-learn",))["scikit-learn"] == "1.9"


@pytest.mark.slow
def test_our_pins_give_way_where_they_exclude(index: Index) -> None:
    index.add("old", "1.0", "numpy<2.4")
    assert index.resolve("old\n")["numpy"] == "2.3"


@pytest.mark.slow
def test_markers_and_wheels_are_the_instances(index: Index) -> None:
    """pip reads markers for the Python that runs it, and a deployer's may be newer or of another system."""
    index.add("more", "1.0", "absent; python_version >= '3.12'", "needed; python_version < '3.12'")
    index.add("needed", "1.0", "deeper; sys_platform == 'linux' and platform_machine == 'aarch64'")
    index.add("deeper")
    for machine in ("x86_64", "aarch64"):
        index.add("fast", tag=f"cp311-cp311-manylinux_2_28_{machine}")
    found = index.resolve("more\nfast\n", machine="aarch64")
    assert {"needed", "deeper", "fast"} <= found.keys()
    assert "absent" not in found
    names = [path.name for path in (index.built / "wheels").rglob("fast*")]
    assert names == ["fast-1.0-cp311-cp311-manylinux_2_28_aarch64.whl"]
    index.add("slow", tag="cp311-cp311-manylinux_2_35_x86_64")
    said = r"^echo requirements\.txt: cannot be had as wheels for CPython 3\.11 on Linux, x86_64: .*slow"
    with pytest.raises(MarkError, match=said):
        index.resolve("slow\n")


@pytest.mark.slow
def test_requirements_may_have_hashes_and_name_files_beside_them(index: Index, tmp_path: Path) -> None:
    """A hash holds for its line only; pip itself would want hashes for all packages, mark's own included."""
    own = make_wheel(tmp_path / "own", "secret-sauce")
    files = {"wheels/" + own.name: own, "more.txt": b"numpy==2.3\n"}
    (wheel,) = index.wheels.glob("orjson-3.2-*")
    text = "orjson==3.2 \\\n    --hash=sha256:%s \\\n    --hash=sha256:{}\n".format("0" * 64)
    named = f"-r more.txt\n./wheels/{own.name}\n"
    found = index.resolve(text % hashlib.sha256(wheel.read_bytes()).hexdigest() + named, files=files)
    assert (found["secret-sauce"], found["numpy"], found["orjson"]) == ("1.0", "2.3", "3.2")
    with pytest.raises(BadInput, match="another hash than its index has: orjson-3"):
        index.resolve(text % ("1" * 64))


@pytest.mark.acceptance
def test_gpu_libraries_go_where_gpus_are(index: Index) -> None:
    index.add("torch", "2.13", "nvidia-cublas", "nvidia-cudnn")
    index.add("nvidia-cublas")
    index.add("nvidia-cudnn")
    with pytest.raises(BadInput, match=r"libraries for GPUs.*`cpu_index`: nvidia-cublas and 1 more"):
        index.resolve("torch\n")
    assert "nvidia-cudnn" in index.resolve("torch\n", gpus=True)
    index.add("torch", "2.13+cpu")
    assert index.resolve("torch\n", cpu_index="https://index.example/cpu")["torch"] == "2.13+cpu"
    with pytest.raises(BadInput, match=r"no code for GPUs.*torch 2\.13\+cpu"):
        index.resolve("torch==2.13\n", gpus=True)


def test_a_wheel_compiled_for_another_machine_is_refused(index: Index, tmp_path: Path) -> None:
    index.own = make_wheel(tmp_path, "mark-serving", "0.1.0", ["numpy"], tag="cp311-cp311-linux_x86_64")
    with pytest.raises(MarkError, match="compiled for another machine"):
        index.resolve(machine="aarch64")


@pytest.mark.slow
def test_the_controller_has_all_that_mark_needs(index: Index) -> None:
    index.add("numba", "1.0")
    made = index.resolve(extras=("serve",))
    assert made == {"mark-serving": "0.1.0", "numba": "1.0", "numpy": "2.4", "orjson": "3.1"}
    assert _ranges(index.own, ()) == ["numba>=1", "numpy>=2"]
    (index.wheels / "numba-1.0-py3-none-any.whl").unlink()
    with pytest.raises(MarkError, match=r"^packages of the echo: cannot be had .* aarch64: .*numba"):
        index.resolve(extras=("serve",), machine="aarch64")


def test_requirements_are_text(index: Index) -> None:
    with pytest.raises(BadInput, match=r"echo requirements\.txt: is not UTF-8"):
        index.resolve(files={"requirements.txt": b"\xff\xfe"})


def test_what_a_bouncer_needs_is_declared_and_pinned() -> None:
    declared = {canonicalize_name(Requirement(line).name) for line in requires("mark-serving") or ()}
    assert set(BOUNCER) <= declared
    pinned = {canonicalize_name(line.partition("==")[0]) for line in constraints().read_text().splitlines()}
    assert set(BOUNCER) <= pinned


def closure(names: tuple[str, ...]) -> set[str]:
    """Return the distributions installed here for these, by canonical name."""
    found: set[str] = set()
    todo = [Requirement(name) for name in names]
    while todo:
        one = todo.pop()
        name = canonicalize_name(one.name)
        if name not in found or one.extras:
            found.add(name)
            needs = [Requirement(line) for line in requires(name) or ()]
            wanted = [*one.extras, ""]
            todo += [n for n in needs if n.marker is None or any(n.marker.evaluate({"extra": each}) for each in wanted)]
    return found


SERVE = """
import sys
from importlib.machinery import PathFinder

class Hides(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {hidden} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hides
from mark.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
SERVICE = """
[service]
name = "echo"
model = "echo:Echo"
slo_ms = 600
slo_attainment = 0.98
"""


def test_mark_serve_imports_what_a_bouncer_has(tmp_path: Path) -> None:
    """It starts as Terraform's unit does, with all other packages hidden. `tests/terraform/test_boot.py` asks one."""
    has = closure(BOUNCER) | {"mark-serving"}
    others = {
        top for top, owners in packages_distributions().items() if not {canonicalize_name(one) for one in owners} & has
    }
    assert {"numba", "pandas", "scipy", "httpx", "uvicorn", "grpc", "highspy"} <= others
    (tmp_path / "service.toml").write_text(SERVICE)
    (tmp_path / "echo.py").write_text(
        "import mark\n\n\nclass Echo(mark.Model):\n    def predict(self, batch): return batch\n"
    )
    (tmp_path / "keys").write_text("operator:0123456789abcdef0123:admin\n")
    (tmp_path / "keys").chmod(0o600)
    reading, writing = os.pipe()
    options = ["--host", "0.0.0.0", "--port", "0", "--keys", "keys", "--tls-terminated-by-balancer"]
    options += [
        "--watch-interruptions",
        "--function",
        "echo-overflow",
        "--function-ms",
        "50",
        "--ready-fd",
        str(writing),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE.format(hidden=others), "serve", "service.toml", *options],
        cwd=tmp_path,
        env=os.environ | {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_EC2_METADATA_DISABLED": "true"},
        pass_fds=[writing],
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    with os.fdopen(reading) as ready:
        said = ready.readline()  # ends when the process does
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert said, errors
    assert process.returncode == 0, errors
