"""Keys that change while a program runs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mark.domain.errors import CloudError
from mark.serving.frontend.auth import Auth, digest_of, read_keys
from mark.serving.frontend.key_poll import EVERY_S, KeyPoll
from tests.infra.testbed.real_processes import wait_for

OLD, NEW = "o" * 20, "n" * 20


class Parameter:
    """A source of keys; None stands for an unreachable source."""

    def __init__(self, *keys: str) -> None:
        self.version, self.asked = 0, 0
        self.put(*keys)

    def put(self, *keys: str) -> None:
        self.version, self.text = self.version + 1, "".join(f"client:{digest_of(key)}:infer\n" for key in keys)

    def __call__(self) -> tuple[int, str]:
        self.asked += 1
        if self.version < 0:
            raise CloudError(f"no answer to call {self.asked % 2}")
        return self.version, self.text


def admitted(auth: Auth, key: str) -> bool:
    return auth.admit(b"POST", b"/invocations", {b"x-api-key": key.encode()}) is None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"client:{OLD}:infer\n")
    return path


def test_what_the_source_has_holds_and_is_kept(file: Path) -> None:
    auth, source = Auth(read_keys(file)), Parameter(NEW)
    KeyPoll(auth, file, source).look()
    assert (admitted(auth, OLD), admitted(auth, NEW)) == (False, True)
    assert file.read_text() == source.text
    assert file.stat().st_mode & 0o077 == 0
    assert [path.name for path in file.parent.iterdir()] == ["keys"]


def test_one_version_is_taken_over_once(file: Path) -> None:
    auth, source = Auth(read_keys(file)), Parameter(NEW)
    poll = KeyPoll(auth, file, source)
    poll.look()
    source.text = "not looked at"
    poll.look()
    assert admitted(auth, NEW)


def test_the_last_keys_stay_when_nothing_better_comes(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    auth, source = Auth(read_keys(file)), Parameter(NEW)
    poll = KeyPoll(auth, file, source)
    source.version = -1
    poll.look()
    assert admitted(auth, OLD)
    source.version, source.text = 7, "no key file"
    poll.look()
    assert admitted(auth, OLD)
    assert "keys stay as they were" in caplog.text
    source.put(NEW)  # it mends itself
    poll.look()
    assert (admitted(auth, OLD), admitted(auth, NEW)) == (False, True)


def test_a_long_failure_is_not_said_with_every_look(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    def source() -> tuple[int, str]:
        raise CloudError("no answer")

    poll = KeyPoll(Auth(read_keys(file)), file, source)
    for _ in range(19):
        poll.look()
    assert caplog.text.count("no answer") == 2


def test_without_a_source_the_file_itself_is_read(file: Path) -> None:
    auth = Auth(read_keys(file))
    poll = KeyPoll(auth, file)
    file.write_text(f"client:{NEW}:infer\n")
    poll.look()
    assert (admitted(auth, OLD), admitted(auth, NEW)) == (False, True)
    assert poll.pause_s() is None


def test_looks_are_spread_around_half_a_minute(file: Path) -> None:
    draws = iter((0.0, 0.5, 1.0))
    poll = KeyPoll(Auth(read_keys(file)), file, Parameter(NEW), lambda: next(draws))
    assert [poll.pause_s() for _ in range(3)] == pytest.approx([0.8 * EVERY_S, EVERY_S, 1.2 * EVERY_S])


def test_a_thread_looks_at_once_and_when_woken(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    auth, source = Auth(read_keys(file)), Parameter(OLD)
    poll = KeyPoll(auth, file, source)
    poll.start()
    wait_for(lambda: source.asked == 1, "a first look")
    source.put(NEW)
    poll.wake()
    wait_for(lambda: admitted(auth, NEW), "a second look")
    poll.close()
    assert not admitted(auth, OLD)


def test_a_thread_survives_whatever_its_first_look_raises(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    auth, answers = Auth(read_keys(file)), iter([RuntimeError("no library")])

    def source() -> tuple[int, str]:
        for error in answers:
            raise error
        return 1, f"client:{digest_of(NEW)}:infer\n"

    poll = KeyPoll(auth, file, source)
    poll.start()
    wait_for(lambda: "looking for keys failed" in caplog.text, "a first look")
    poll.wake()
    wait_for(lambda: admitted(auth, NEW), "a second look")
    poll.close()


def test_a_full_disk_costs_the_copy_only(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    auth = Auth(read_keys(file))
    KeyPoll(auth, file.parent / "gone" / "keys", Parameter(NEW)).look()
    assert admitted(auth, NEW)
    assert "no copy of the keys is kept" in caplog.text
