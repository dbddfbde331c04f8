"""A registry in a bucket: the contract on moto, long lists, and S3's refusals."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site
from mark_infra.store.s3 import PAUSES_S, S3Objects, open_bucket

from mark.cli.main import main
from mark.domain.errors import BadInput, MarkError
from mark.models.registry import AliasConflict, Registry
from tests.infra.conftest import REGION, MotoServer, moto_app, serving
from tests.models.registry_contract import ObjectStoreContract, Open

Captured = pytest.CaptureFixture[str]
REGISTER = ["register", "ranker:Ranker", "--name", "ranker", "--files", "*.py", "--no-load"]


def gate(moto: MotoServer) -> Gate:
    return Gate(Site("test", REGION, ""), options=moto.options)


@pytest.fixture
def bucket(moto: MotoServer) -> str:
    name = f"mark-{uuid4()}"
    moto.client("s3").create_bucket(Bucket=name)
    return name


class TestS3Objects(ObjectStoreContract):
    @pytest.fixture
    def opened(self, moto: MotoServer, bucket: str) -> Open:
        return lambda: S3Objects(gate(moto), bucket, "team/registry/")


class Answering:
    """A client of S3 that returns its errors first, and counts calls."""

    def __init__(self, client: Any, *codes: str) -> None:
        self._client, self._codes = client, list(codes)
        self.puts = 0

    def put_object(self, **arguments: Any) -> Any:
        self.puts += 1
        if self._codes:
            said = {"Error": {"Code": self._codes.pop(0), "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": 409}}
            raise ClientError(said, "PutObject")  # type: ignore[arg-type]
        return self._client.put_object(**arguments)

    def list_objects_v2(self, **arguments: Any) -> Any:
        return self._client.list_objects_v2(**arguments, MaxKeys=2)

    def __getattr__(self, method: str) -> Any:
        return getattr(self._client, method)


class AnsweringGate(Gate):
    def __init__(self, moto: MotoServer, *codes: str) -> None:
        super().__init__(Site("test", REGION, ""), options=moto.options)
        self.answering = Answering(super().client("s3"), *codes)

    def client(self, service: str, *, patient: bool = False) -> Any:
        return self.answering


def test_more_keys_than_one_answer_holds_are_all_listed(moto: MotoServer, bucket: str) -> None:
    """An answer holds a thousand keys; here two."""
    objects = S3Objects(AnsweringGate(moto), bucket, "r")
    for n in range(5):
        objects.create(f"k/{n}", b"x")
    assert objects.keys("k/") == [f"k/{n}" for n in range(5)]


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_a_conflict_of_two_writers_is_no_answer(moto: MotoServer, bucket: str, code: str) -> None:
    """S3's 409 says that another, perhaps failed, write of the key was pending; so the call is repeated a bit later."""
    slept_s: list[float] = []
    busy = AnsweringGate(moto, code, code)
    assert S3Objects(busy, bucket, sleep=slept_s.append).create("a", b"x")
    assert (busy.answering.puts, slept_s) == (3, [*PAUSES_S[:2]])


def test_conflicts_without_end_are_one_line(moto: MotoServer, bucket: str) -> None:
    slept_s: list[float] = []
    always = AnsweringGate(moto, *["ConditionalRequestConflict"] * 99)
    with pytest.raises(MarkError) as raised:
        S3Objects(always, bucket, "r", sleep=slept_s.append).create("b", b"x")
    assert str(raised.value) == (
        f"registry s3://{bucket}/r/: another write of b was under way at each of 6 tries in 8 s; say it again later "
        "(ConditionalRequestConflict: no)"
    )
    assert not isinstance(raised.value, BadInput)  # the same command may work later
    assert (always.answering.puts, slept_s) == (6, [*PAUSES_S])
    assert S3Objects(gate(moto), bucket, "r").read("b") is None


@pytest.mark.parametrize("large", [False, True])
def test_what_the_other_writer_created_meanwhile_stays(
    moto: MotoServer, bucket: str, tmp_path: Path, large: bool
) -> None:
    """No file is sent again, because it may have gigabytes."""
    (tmp_path / "file").write_bytes(b"mine")
    other, busy = S3Objects(gate(moto), bucket), AnsweringGate(moto, "ConditionalRequestConflict")

    def other_one_ends(_: float) -> None:
        assert other.create("a", b"its")

    mine = S3Objects(busy, bucket, sleep=other_one_ends)
    assert not mine.create("a", tmp_path / "file" if large else b"mine")
    assert busy.answering.puts == (1 if large else 2)
    assert other.read("a") == b"its"


def test_a_move_that_met_another_one_is_told_of_it(moto: MotoServer, bucket: str, tmp_path: Path) -> None:
    """The alias is where the other move left it, and no move is applied twice."""
    (tmp_path / "m.py").write_text("1")
    other = Registry(S3Objects(gate(moto), bucket), by="ann")
    version = other.register("m", "m:M", {"m.py": tmp_path / "m.py"})
    busy = AnsweringGate(moto, "ConditionalRequestConflict")
    mine = Registry(S3Objects(busy, bucket, sleep=lambda _: other.promote("m", version.short, "production")), by="bob")
    with pytest.raises(AliasConflict, match=f"was moved at the same time: at {version.short}, by ann"):
        mine.promote("m", version.short, "production")
    assert [move.by for move in other.history("m", "production")] == ["ann"]


def test_a_file_that_is_there_is_not_sent_again(moto: MotoServer, bucket: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    counting = AnsweringGate(moto)
    objects = S3Objects(counting, bucket)
    assert [objects.create("a", tmp_path / "file") for _ in range(2)] == [True, False]
    assert counting.answering.puts == 1


def test_a_bucket_that_is_not_there_is_one_line(moto: MotoServer) -> None:
    """The line also names the operation, which is the permission that a user looks for."""
    objects = S3Objects(gate(moto), "nothing-there", "r")
    for action, what in (
        (lambda: objects.read("a"), "read"),
        (lambda: objects.keys(""), "listed"),
        (lambda: objects.create("a", b"x"), "written"),
    ):
        with pytest.raises(BadInput, match=rf"registry: cannot be {what} \(NoSuchBucket.*: s3://nothing-there/r/"):
            action()


@pytest.fixture
def aws(moto: MotoServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Set the environment in which AWS's SDKs find region, credentials and endpoint, and no other setting."""
    for variable in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    for variable, value in {
        "AWS_ENDPOINT_URL": moto.url,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_CONFIG_FILE": str(tmp_path / "no-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "no-credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ranker.py").write_text("class Ranker: ...\n")
    return monkeypatch


class Refusing:
    """moto with one method refused in S3's own words."""

    def __init__(self, method: str, code: str, status: str) -> None:
        self._moto, self._method, self._code, self._status = moto_app(), method, code, status

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] != self._method:
            return self._moto(environ, start_response)
        environ["wsgi.input"].read()
        body = f"<Error><Code>{self._code}</Code><Message>no</Message></Error>".encode()
        start_response(self._status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]


@pytest.fixture
def refusing() -> Iterator[Callable[[str, str, str], MotoServer]]:
    """Open servers that refuse a method; close them however the test ends."""
    with ExitStack() as opened:
        yield lambda method, code, status: opened.enter_context(serving(Refusing(method, code, status)))


def told(capsys: Captured, code: int, *words: str) -> str:
    """Return the error of a `mark models` that ends with the code and no output; sizes may precede it."""
    capsys.readouterr()
    assert main(["models", *words]) == code
    found = capsys.readouterr()
    *sizes, line = found.err.splitlines()
    assert found.out == ""
    assert all(size.startswith("mark: of ") and " keeps " in size for size in sizes)
    return line.removeprefix("mark: error: ")


def test_no_such_bucket_is_one_line_and_exit_2(aws: pytest.MonkeyPatch, capsys: Captured) -> None:
    for words, what in ((["list"], "listed"), (["show", "m@production"], "listed"), (REGISTER, "listed")):
        line = told(capsys, 2, *words, "--registry", "s3://nothing-there/r")
        assert line.endswith(
            f"registry: cannot be {what} (NoSuchBucket: The specified bucket does not exist): s3://nothing-there/r/"
        )


@pytest.mark.parametrize(
    ("method", "words", "what"),
    [("GET", ["list"], "listed"), ("GET", ["rollback", "m", "production"], "listed"), ("PUT", REGISTER, "written")],
)
@pytest.mark.parametrize(("code", "status"), [("AccessDenied", "403 Forbidden"), ("PermanentRedirect", "301 Moved")])
def test_what_s3_refuses_is_one_line_and_exit_2(
    aws: pytest.MonkeyPatch,
    moto: MotoServer,
    refusing: Callable[[str, str, str], MotoServer],
    capsys: Captured,
    method: str,
    words: list[str],
    what: str,
    code: str,
    status: str,
) -> None:
    aws.setenv("AWS_ENDPOINT_URL", refusing(method, code, status).url)
    moto.client("s3").create_bucket(Bucket="kept")  # both servers share one moto
    line = told(capsys, 2, *words, "--registry", "s3://kept/r")
    assert line.endswith(f"registry: cannot be {what} ({code}: no): s3://kept/r/")


def test_no_credentials_are_one_line_and_exit_2(aws: pytest.MonkeyPatch, bucket: str, capsys: Captured) -> None:
    aws.delenv("AWS_ACCESS_KEY_ID")
    aws.delenv("AWS_SECRET_ACCESS_KEY")
    for words in (["list"], REGISTER):
        line = told(capsys, 2, *words, "--registry", f"s3://{bucket}/r")
        assert line.endswith(f"registry: cannot be listed (Unable to locate credentials): s3://{bucket}/r/")


def test_an_unreachable_endpoint_is_one_line_and_exit_1(aws: pytest.MonkeyPatch, capsys: Captured) -> None:
    """The command is not at fault, and may work later."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # it does not listen
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        aws.setenv("AWS_ENDPOINT_URL", url)
        line = told(capsys, 1, "list", "--registry", "s3://kept/r")
    assert line.startswith("registry s3://kept/r/: cannot be listed (EndpointConnectionError: Could not connect to ")
    assert f'"{url}/kept?' in line


@pytest.mark.parametrize(
    ("place", "variable", "value", "line"),
    [
        ("s3://", "", "", "registry s3://: must be s3://BUCKET or s3://BUCKET/PREFIX"),
        ("s3://no bucket/r", "", "", "registry s3://no bucket/r: must be s3://BUCKET or s3://BUCKET/PREFIX"),
        ("s3://kept/r", "AWS_DEFAULT_REGION", "", "registry s3://kept/r: needs a region: set AWS_DEFAULT_REGION"),
        ("s3://kept/r", "AWS_PROFILE", "no-such", "AWS profile: is not in AWS's configuration: no-such"),
        (
            "s3://kept/r",
            "AWS_ENDPOINT_URL",
            "127.0.0.1:9",
            "registry s3://kept/r: cannot be used (s3: Invalid endpoint: 127.0.0.1:9)",
        ),
    ],
)
def test_a_place_that_cannot_be_opened_is_one_line(
    aws: pytest.MonkeyPatch, capsys: Captured, place: str, variable: str, value: str, line: str
) -> None:
    """The exit code is 2, because a value must change."""
    if variable:
        aws.setenv(variable, value) if value else aws.delenv(variable)
    for words in (["list"], REGISTER):
        assert told(capsys, 2, *words, "--registry", place) == line


def test_a_bad_alias_asks_nothing_of_s3(aws: pytest.MonkeyPatch, capsys: Captured) -> None:
    """It does not even ask whether the bucket exists."""
    for words in ([*REGISTER, "--alias", "a/b"], [*REGISTER[:2], "--name", "a/b"]):
        assert "must be 1 to 63 letters" in told(capsys, 2, *words, "--registry", "s3://nothing-there/r")


def test_a_registry_in_a_bucket_serves_the_command_line(aws: pytest.MonkeyPatch, bucket: str, capsys: Captured) -> None:
    """The same commands as above succeed here."""
    assert main(["models", *REGISTER, "--alias", "production", "--registry", f"s3://{bucket}/r"]) == 0
    assert main(["models", "list", "--registry", f"s3://{bucket}/r"]) == 0
    assert "production" in capsys.readouterr().out


def test_a_bucket_is_opened_by_its_name(aws: pytest.MonkeyPatch, moto: MotoServer, bucket: str) -> None:
    """AWS's SDKs find region, credentials and endpoint."""
    open_bucket(f"//{bucket}/some/where").create("a", b"x")
    assert S3Objects(gate(moto), bucket).keys("") == ["some/where/a"]
