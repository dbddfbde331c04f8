"""`mark keys`: its output for people and scripts, and its error messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mark_infra.deploy.keys import first_keys, parameters

from mark.cli.main import main
from mark.serving.frontend.auth import digest_of
from tests.infra.conftest import REGION, MotoServer, moto_app, serving

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MotoServer]:
    """Make a site with the first keys, as Terraform writes them."""
    monkeypatch.chdir(tmp_path)
    with serving(moto_app()) as moto:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_ENDPOINT_URL": moto.url,
        }.items():
            monkeypatch.setenv(name, value)
        keys = first_keys()
        for name, text in parameters("mark").items():
            moto.client("ssm").put_parameter(Name=name, Value=text(keys), Type="SecureString")
        yield moto


def run(capsys: Captured, *words: str) -> tuple[str, str]:
    capsys.readouterr()
    assert main(["keys", *words, "--region", REGION]) == 0
    captured = capsys.readouterr()
    return captured.out.strip(), captured.err


def bouncers(moto: MotoServer) -> str:
    found = moto.client("ssm").get_parameter(Name="/mark/mark/keys/bouncers", WithDecryption=True)
    return str(found["Parameter"]["Value"])


def test_a_key_comes_turns_and_goes(site: MotoServer, capsys: Captured) -> None:
    added, told = run(capsys, "add", "ci", "--scopes", "infer,metrics")
    assert told == "mark: ci is let in within a minute\n"
    assert f"ci:{digest_of(added)}:infer,metrics\n" in bouncers(site)
    rotated, _ = run(capsys, "rotate", "ci")
    assert bouncers(site).count("\nci:") == 2
    again, _ = run(capsys, "rotate", "ci", "--overlap-h", "0")
    assert digest_of(rotated) not in bouncers(site)
    assert digest_of(again) in bouncers(site)
    assert run(capsys, "revoke", "ci") == ("", "mark: ci is refused within a minute\n")
    assert "ci:" not in bouncers(site)
    assert not Path(".mark-deploy").exists()


def test_a_list_shows_no_key(site: MotoServer, capsys: Captured) -> None:
    added, _ = run(capsys, "add", "ci")
    run(capsys, "rotate", "ci")
    table, _ = run(capsys, "list")
    assert [line.split()[0] for line in table.splitlines() if line] == [
        "key",
        "controller",
        "operator",
        "client",
        "ci",
        "ci",
    ]
    assert "UTC" in table
    data = json.loads(run(capsys, "list", "--json", "-")[0])
    assert [(key["name"], key["scopes"]) for key in data["keys"]][:2] == [
        ("controller", ["metrics"]),
        ("operator", ["admin"]),
    ]
    assert data["keys"][3]["digest"] == digest_of(added)
    assert added not in table + json.dumps(data)


def test_the_controllers_key_is_not_shown(site: MotoServer, capsys: Captured) -> None:
    assert run(capsys, "rotate", "controller") == ("", "mark: the controller has a new key\n")


def test_what_cannot_be_changed_is_one_line(site: MotoServer, capsys: Captured) -> None:
    for words, said in (
        (["revoke", "controller"], "rotate it"),
        (["rotate", "absent"], "no key has it"),
        (["add", "client"], "there is such a key"),
        (["list", "--name", "other"], "--name: has no keys yet"),
    ):
        capsys.readouterr()
        assert main(["keys", *words, "--region", REGION]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1
