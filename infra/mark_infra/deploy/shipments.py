"""The files sent for a service or a pipeline's stages, from its folder and named as instances find them."""

from __future__ import annotations

import json
import posixpath
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline, names_pipeline
from mark.config.service_file import SERVICE_NAMES, load_service
from mark.domain.catalog.tables import load_catalog
from mark.domain.cells import read_text
from mark.domain.errors import BadInput, MarkError
from mark.domain.service import ResolvedService, ServiceConfig
from mark.launch.personal_serving import table_file
from mark.models.files import ModelFiles, sorted_out, walk
from mark.models.registry_place import PREFIX as REGISTRY
from mark.models.registry_unpacked import FILES, check
from mark.models.registry_unpacked import PREFIX as UNPACKED
from mark.models.trial import DRIVER, opened_files
from mark.planning.graphs.sited_group import sited_group
from mark.planning.graphs.whole_fleet import whole_fleet
from mark.planning.resolve import affordable
from mark.simulation.inputs import looked_up, open_service
from mark.simulation.request import RunRequest
from mark_infra.deploy.artifacts import size_of
from mark_infra.deploy.wheelhouse import HEADS

Opened = Callable[[str, Path, Iterable[Path]], set[Path]]
"""Which of some files a model opens: its reference, the folder it is looked up in, and the files. Raises BadInput."""

_MOST_BYTES = 10 * 1024**3
_VERSIONS = "versions"  # folder of a registry's versions in the archive
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_INSTANCES = r"""^[ \t]*instances[ \t]*=[ \t]*\[(?:\s|,|#[^\n]*|"[^"\n]*"|'[^'\n]*')*\]"""  # in a service file
_FILES = {"torch": "torch", "sklearn": "scikit-learn", "onnx": "onnxruntime"}


@dataclass(frozen=True, slots=True)
class Shipment:
    """A service with the files to send, by name, including `service.toml`. A pipeline's stages share its files.

    At most one of `pipeline` and `whole` is set.
    """

    deployment: ResolvedService
    files: dict[str, Path | bytes]
    kept_back: list[str] = field(default_factory=list)  # files that may hold a secret
    pipeline: PipelineConfig | None = None  # the pipeline of this stage
    whole: PipelineConfig | None = None  # the pipeline that each instance serves whole

    @property
    def config(self) -> PipelineConfig | None:
        """Return the pipeline of its `service.toml`, if it is a pipeline's."""
        return self.pipeline or self.whole

    @property
    def service(self) -> ServiceConfig:
        return self.deployment.service

    @property
    def folder(self) -> str:
        """Return the name of the folder's archive: the service's, or its pipeline's."""
        return self.service.name if self.pipeline is None else self.pipeline.name


def shipment(service_file: str, search: Path | None = None, opened: Opened = opened_files) -> Shipment:
    """Return a service with the files that it needs.

    `search` is the folder of its model's code (default: the service file's). `opened` returns the files that a model
    opens. Raises BadInput, or Infeasible if no type keeps the SLO.
    """
    deployment = _deployment(service_file)
    service = deployment.service
    source = Path(service.source).resolve()
    files: dict[str, Path | bytes] = {}
    kept_back: list[str] = []
    text = source.read_text(encoding="utf-8")
    if service_file not in SERVICE_NAMES:
        folder = search or source.parent
        models = [version.model for version in service.versions] or [service.model]
        found, kept_back = sorted_out(folder)
        for model in models:
            _check_model(model, folder, found)
        files |= _needed(folder, found, kept_back, models, service.files, service.source, opened)
        text = _with_tables(text, {"profile": service.profile_file, "catalog": service.catalog}, folder, files)
        text = _with_versions(text, service, files)
    files["service.toml"] = text.encode()
    return Shipment(deployment, files, kept_back)


def shipments(file: str, opened: Opened = opened_files) -> list[Shipment]:
    """Return the shipments of a service file or pipeline file.

    A pipeline's stages are one service each, or one as a whole. Raises BadInput, also for stages without their part of
    RT_max; Infeasible if no type keeps a stage's SLO.
    """
    if not names_pipeline(file):
        return [shipment(file, opened=opened)]
    config = load_pipeline(file)
    config.check_visits()
    services = config.bought_services()
    source = Path(config.source).resolve()
    found, kept_back = sorted_out(source.parent)
    models = list(dict.fromkeys(stage.reference for stage in config.stages))
    drivers = [config.driver] if config.driver else []
    for model in models + drivers:
        _check_model(model, source.parent, found)
    references = [*models, *(DRIVER + driver for driver in drivers)]
    files: dict[str, Path | bytes] = {
        **_needed(source.parent, found, kept_back, references, config.files, config.source, opened)
    }
    item_table = _item_table(config, source.parent)
    files |= _parity_file(config, source.parent) | item_table
    tables = {"profile": config.profile_file, "catalog": config.fleet.catalog, "lineage": config.lineage_file}
    text = _with_tables(source.read_text(encoding="utf-8"), tables, source.parent, files)
    if config.personal is not None and config.personal.table.startswith(REGISTRY):
        (sent_as,) = item_table  # a file, so that servers need no registry
        text = re.sub(rf"""(["']){re.escape(config.personal.table)}\1""", json.dumps(sent_as), text)
    files["service.toml"] = text.encode()
    pipeline, whole = (None, config) if config.whole else (config, None)
    made = [Shipment(_looked_up(config, service), files, kept_back, pipeline, whole) for service in services]
    for one in made:
        names = _stages_of(one.service)
        where = f"{config.source} [stage.{names[0]}]"
        models = [stage.reference for stage in config.stages if stage.name in names]
        models += [version.model for version in one.service.versions]
        if any(model.startswith((UNPACKED, REGISTRY)) for model in models):
            raise BadInput("a stage's model is not sent from a registry: name code, or a file", f"{where} model")
        if not _SERVICE.fullmatch(one.service.name):
            raise BadInput("with its pipeline's name it has more than 63 characters", where, one.service.name)
    return made


def _parity_file(config: PipelineConfig, folder: Path) -> dict[str, Path]:
    """Return the file that describes an insured service's parity models. Raises BadInput if it lies elsewhere."""
    if config.insurance is None or (parity := config.insurance.parity) is None:
        return {}
    return _in_folder(Path(parity.file), folder, f"{config.source} [insurance] parity")


def _item_table(config: PipelineConfig, folder: Path) -> dict[str, Path]:
    """Return the item vectors of personal heads by their name in the archive; a registry's version lies beside them.

    Raises BadInput for a file elsewhere.
    """
    table, where = "" if config.personal is None else config.personal.table, f"{config.source} [personal] table"
    if table.startswith(REGISTRY):
        file = table_file(config, where)
        return {f"{_VERSIONS}/table-{file.name}": file}
    return _in_folder(Path(table), folder, where) if table else {}


def _in_folder(file: Path, folder: Path, where: str) -> dict[str, Path]:
    file = file.resolve()
    if not file.is_relative_to(folder):
        raise BadInput("is not in the service's folder, and only that folder is sent", where, str(file))
    return {file.relative_to(folder).as_posix(): file}


def _parity_folder(config: PipelineConfig | None) -> Iterator[str]:
    """Yield the folder in the archive with an insured service's parity models."""
    if config is not None:
        for name in _parity_file(config, Path(config.source).resolve().parent):
            yield f"{posixpath.dirname(name)}/".lstrip("/")


def as_found(shipments: Sequence[Shipment], found: Sequence[ResolvedService]) -> list[Shipment]:
    """Return the shipments with the available types. The stages of a pipeline share its file."""
    texts: dict[str, str] = {}
    for one, deployment in zip(shipments, found, strict=True):
        if one.config is not None and deployment is not one.deployment:
            text = one.files["service.toml"]
            assert isinstance(text, bytes)
            for stage in _stages_of(one.service):
                before = texts.get(one.folder, text.decode())
                texts[one.folder] = _with_stage_instances(before, stage, deployment.service.instances)
    files = {
        one.folder: {**one.files, "service.toml": texts[one.folder].encode()} if one.folder in texts else one.files
        for one in shipments
    }
    return [
        _of_these(one, deployment)
        if one.config is None
        else replace(one, deployment=deployment, files=files[one.folder])
        for one, deployment in zip(shipments, found, strict=True)
    ]


def libraries_of(sent: Shipment) -> tuple[str, ...]:
    """Return the packages for models that are files and for personal heads, because no code imports them."""
    kinds = {reference.partition(":")[0] for reference, _ in models_of(sent)}
    found = {_FILES[kind] for kind in kinds if kind in _FILES}
    if sent.whole is not None and sent.whole.personal is not None:
        found.add(HEADS)
    return tuple(sorted(found))


def environment_of(sent: Shipment, size: str) -> dict[str, str]:
    """Return the environment of a function's handler, of size `lambda:MEMORY_MB`; of several versions, the heaviest."""
    service = sent.service
    model, version = service.model, "1"
    if service.versions:
        most = max(service.versions, key=lambda version: version.weight)
        model, version = _shipped(most.model), most.name
    elif ":" not in model:
        file = Path(service.profile_file).resolve() if service.profile_file else None
        profiles = [f"&profile=service/{name}" for name, path in sent.files.items() if path == file]
        model = f"mark.profiling.replay:Replay?model={model}&instance={size}{''.join(profiles[-1:])}"
    name = service.stage or service.name  # the name that its bouncers use
    return {"MARK_MODEL": model, "MARK_MODEL_PATH": "service", "MARK_NAME": name, "MARK_VERSION": version}


def models_of(sent: Shipment) -> Iterator[tuple[str, str]]:
    """Yield the service's model references, each with the archive folder in which it is looked up."""
    service = sent.service
    if sent.config is not None and not service.stage:
        yield from ((stage.model, "") for stage in sent.config.stages if stage.name in _stages_of(service))
        if sent.whole is not None and sent.whole.driver is not None:
            yield sent.whole.driver, ""
        return
    for model in [version.model for version in service.versions] or [service.model]:
        if model.startswith(UNPACKED):
            folder = Path(model.removeprefix(UNPACKED))
            yield check(folder).content.model, f"{_VERSIONS}/{folder.name}/{FILES}"
        else:
            yield model, ""


def check_archive(path: Path, *shipped: Shipment) -> None:
    """Raise MarkError if the archive's service or pipeline is not the one that was checked here."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(path) as tar:
        folders = [f"{_VERSIONS}/", *_parity_folder(shipped[0].config)]
        read = [m for m in tar.getmembers() if m.name.endswith((".toml", ".csv")) or m.name.startswith(tuple(folders))]
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
        tar.extractall(folder, members=read)
        file = str(Path(folder, "service.toml"))
        if shipped[0].config is None:
            arrived = [_deployment(file)]
        else:
            config = load_pipeline(file)
            arrived = [_looked_up(config, service) for service in config.bought_services()]
    for one, there in zip(shipped, arrived, strict=True):
        if (there.offers, there.skipped) != (one.deployment.offers, one.deployment.skipped):
            raise MarkError(f"{one.service.name}: the files to send differ from those that the service file names")


def _stages_of(service: ServiceConfig) -> tuple[str, ...]:
    """Return the stages of a pipeline that are bought as this service."""
    return service.whole or service.together or (service.stage,)


def _looked_up(config: PipelineConfig, service: ServiceConfig) -> ResolvedService:
    """Return a stage, a group of stages, or a whole pipeline with its offers."""
    if service.whole:
        return affordable(whole_fleet(config, service, load_catalog(service.catalog)).resolved)
    if service.together:
        return sited_group(config, service, load_catalog(service.catalog)).resolved
    return looked_up(service, RunRequest(trace="", service=service.source), model_files=True)


def _deployment(service_file: str) -> ResolvedService:
    return open_service(RunRequest(trace="", service=service_file), model_files=True)


def _needed(
    folder: Path,
    found: dict[str, Path],
    kept_back: Sequence[str],
    references: Sequence[str],
    patterns: Sequence[str],
    source: str,
    opened: Opened,
) -> dict[str, Path]:
    """Return the folder's files that match a pattern or that models open, and the files of their packages.

    Raises BadInput for a pattern without a file, for a model that cannot be loaded here, and for one that opens a file
    that is never sent.
    """
    chosen = dict(_packages(found))
    for pattern in patterns:
        matching = {name: path for name, path in found.items() if fnmatch(name, pattern)}
        if not matching:
            raise BadInput("no file of the service's folder that may be sent matches it", f"{source} files", pattern)
        chosen |= matching
    if patterns:
        return _checked(folder, chosen)
    secret = {name: folder / name for name in kept_back}
    for reference in dict.fromkeys(reference for reference in references if _has_code(reference)):
        try:
            seen = opened(reference, folder, [*found.values(), *secret.values()])
        except BadInput as error:
            what = f"{error.what}; where it cannot load here, name the files to send: [service] files = [...]"
            raise BadInput(what, f"{source} {error.where}", error.value) from None
        if never := [name for name, path in secret.items() if path in seen]:
            what = "opens a file that is never sent, as a log or a possible secret: rename it"
            raise BadInput(what, f"{source} {reference}", never[0])
        chosen |= ModelFiles(reference, folder, found, []).only(seen).files
    return _checked(folder, chosen)


def _checked(folder: Path, files: dict[str, Path]) -> dict[str, Path]:
    """Return the files. Raises BadInput if they are too large, or a symbolic link leads out of the folder."""
    size = size_of(files)
    if size > _MOST_BYTES:
        raise BadInput("more than 10 GiB would be sent", str(folder), f"{size / 1024**3:.0f} GiB")
    return ModelFiles("", folder, files, []).checked().files


def _has_code(reference: str) -> bool:
    """Return whether the model has files or code that may lie in the service's folder."""
    kind, colon, _ = reference.partition(":")
    return bool(colon) and kind not in ("http", "https", "version") and kind.partition(".")[0] != "mark"


def _packages(found: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Yield requirements.txt, and the files and folders that it names."""
    todo = ["requirements.txt"]
    while todo:
        name = todo.pop()
        if name not in found:
            continue
        yield name, found[name]
        if name.endswith(".txt"):
            text = found[name].read_text(encoding="utf-8", errors="replace")
            words = {posixpath.normpath(word) for word in re.split(r"[\s=]+", text) if word}
            todo += [other for other in found if other != name and {other, *_parents(other)} & words]


def _parents(name: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(name).parents][:-1]


def _check_model(model: str, folder: Path, files: Mapping[str, Path | bytes]) -> None:
    """Raise BadInput for a model or driver that would be missing where the archive is unpacked."""
    kind, colon, rest = model.partition(":")
    if not colon or kind in ("http", "https", "version"):
        return
    if kind in _FILES:
        if rest.partition("?")[0] not in files:
            raise BadInput("is not in the service's folder, and only that folder is sent", f"{folder}", model)
        return
    top = kind.partition(".")[0]
    here = f"{top}.py" in files or any(name.startswith(f"{top}/") for name in files)
    if not here and top != "mark" and "requirements.txt" not in files:
        raise BadInput("its module is not in the folder, and no requirements.txt brings it", f"{folder}", model)


def _with_tables(text: str, tables: Mapping[str, str | None], folder: Path, files: dict[str, Path | bytes]) -> str:
    """Add `tables`, by their keys in the service file, to `files`; return the service file with their names there."""
    for key, path in tables.items():
        if path is None or not Path(path).is_file():
            continue  # shipped with mark
        inside = Path(path).resolve()
        name = inside.relative_to(folder).as_posix() if inside.is_relative_to(folder) else f"{key}-{inside.name}"
        files[name] = inside
        # service.toml will be at the top of the folder, so the name is relative to the top.
        text = _said_anew(text, key, name)
    return text


def _with_versions(text: str, service: ServiceConfig, files: dict[str, Path | bytes]) -> str:
    """Add the service's versions in a registry to `files`; return the service file with their references there.

    So instances do not need the registry, and all instances of a site serve the same bytes until the next deployment.
    """
    registered = [version for version in service.versions if version.model.startswith(UNPACKED)]
    said = load_service(service.source).versions
    if registered and not said:  # `model` itself names a version
        (version,) = registered
        line = f'"{version.name}" = {{ model = "{_shipped(version.model)}", weight = 1.0 }}'
        text = f"{text.rstrip()}\n\n[service.versions]\n{line}\n"
    needs: list[str] = []
    for version in registered:
        folder = Path(version.model.removeprefix(UNPACKED))
        files |= {f"{_VERSIONS}/{folder.name}/{name}": path for path, name in walk(folder, folder)}
        if (own := folder / FILES / "requirements.txt").is_file():
            needs.append(read_text(own).strip())
    for before, version in zip(said, service.versions, strict=False):
        if version in registered:
            quoted = rf"""(["']){re.escape(before.model)}\1"""  # quoted, as one may be another's prefix
            text = re.sub(quoted, json.dumps(_shipped(version.model)), text)
    if needs and "requirements.txt" not in files:
        files["requirements.txt"] = ("\n".join(dict.fromkeys(needs)) + "\n").encode()
    return text


def _shipped(model: str) -> str:
    """Return the reference as it is where the archive is unpacked."""
    return f"{UNPACKED}{_VERSIONS}/{Path(model).name}" if model.startswith(UNPACKED) else model


def _of_these(sent: Shipment, deployment: ResolvedService) -> Shipment:
    """Return the shipment of a service with fewer types; its file names the remaining ones."""
    if deployment is sent.deployment:
        return sent
    text = sent.files["service.toml"]
    assert isinstance(text, bytes)
    named = _with_instances(text.decode(), deployment.service.instances).encode()
    return replace(sent, deployment=deployment, files={**sent.files, "service.toml": named})


def _with_instances(text: str, instances: Sequence[str]) -> str:
    """Return the service file with these types."""
    line = f"instances = {json.dumps(list(instances))}"
    changed, count = re.subn(_INSTANCES, lambda _: line, text, count=1, flags=re.M)
    if count:
        return changed
    changed, count = re.subn(r"^[ \t]*\[fleet\][^\n]*$", lambda head: f"{head[0]}\n{line}", text, count=1, flags=re.M)
    return changed if count else f"{text.rstrip()}\n\n[fleet]\n{line}\n"


def _with_stage_instances(text: str, stage: str, instances: Sequence[str]) -> str:
    """Return the pipeline file with these types for a stage."""
    line = f"instances = {json.dumps(list(instances))}"
    head = rf"""^[ \t]*\[[ \t]*stage[ \t]*\.[ \t]*(["']?){re.escape(stage)}\1[ \t]*\][^\n]*$"""
    found = re.search(head, text, flags=re.M)
    if found is None:  # in another notation; the archive's check will find it
        return text
    after = re.search(r"^[ \t]*\[", text[found.end() :], flags=re.M)
    end = len(text) if after is None else found.end() + after.start()
    section = re.sub(_INSTANCES, "", text[found.end() : end], count=1, flags=re.M)
    return f"{text[: found.end()]}\n{line}{section}{text[end:]}"


def _said_anew(text: str, key: str, value: str) -> str:
    """Return the service file with `value` for `key`."""
    return re.sub(rf"^(\s*{key}\s*=\s*).*$", lambda line: line[1] + json.dumps(value), text, count=1, flags=re.M)
