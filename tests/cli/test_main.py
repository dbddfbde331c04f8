"""Every way to end has its exit code and one line on stderr."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mark.cli.main import guarded, main, parser
from mark.domain.errors import BadInput, Infeasible
from mark.traffic.traces.blocks import watched

SERVE = ("--service", "inception-v3")


def one_line(captured: str) -> str:
    assert captured.endswith("\n")
    assert captured.count("\n") == 1
    assert captured.startswith("mark: ")
    return captured


def raising(error: BaseException) -> Callable[[], int]:
    def action() -> int:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadInput("is\nno number", "t.csv line 3", "x"), 2),
        (Infeasible("no offer meets the SLO"), 3),
        (RuntimeError("lost\nit"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_error_is_one_line_and_its_own_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(raising(error)) == code
    captured = capsys.readouterr()
    one_line(captured.err)
    assert captured.out == ""


def test_a_fault_of_ours_says_how_to_see_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MARK_TRACEBACK", raising=False)
    assert guarded(raising(ZeroDivisionError("x"))) == 1
    assert "MARK_TRACEBACK=1" in capsys.readouterr().err
    monkeypatch.setenv("MARK_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        guarded(raising(ZeroDivisionError("x")))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["simulat"], "simulat"),
        (["simulate"], "TRACE"),
        (["simulate", "t.csv"], "--service"),
        (["simulate", "t.csv", *SERVE, "--scale", "0"], "--scale: must be above zero, not '0'"),
        (["simulate", "t.csv", *SERVE, "--scale", "nan"], "--scale: must be finite, not 'nan'"),
        (["simulate", "t.csv", *SERVE, "--scale", "ten"], "--scale: must be a number, not 'ten'"),
        (["simulate", "t.csv", *SERVE, "--duration", "-1"], "--duration: must be above zero, not '-1'"),
        (["simulate", "t.csv", *SERVE, "--start", "-1"], "--start: must be zero or more, not '-1'"),
        (["simulate", "t.csv", *SERVE, "--train", "inf"], "--train: must be finite, not 'inf'"),
        (["simulate", "t.csv", *SERVE, "--seed", "-1"], "--seed: must be a whole number"),
        (["simulate", "t.csv", *SERVE, "--seed", "9" * 30], "--seed: must be a whole number"),
        (["simulate", "t.csv", *SERVE, "--gaps", "guess"], "guess"),
        (["simulate", "t.csv", *SERVE, "--markets", "spot,moon"], "unknown market 'moon'"),
        (["simulate", "t.csv", *SERVE, "--log-filter", "host"], "must be field=value, not 'host'"),
        (["simulate", "t.csv", *SERVE, "--json", "no/such/folder/x.json"], "no such folder"),
        (["simulate", "t.csv", *SERVE, "--report", "."], "must name a file"),
        (["simulate", "t.csv", *SERVE, "--sca", "1"], "--sca"),
        (["compare", "t.csv", *SERVE, "--policies", "mark,,oracle"], "names nothing"),
        (["compare", "t.csv", *SERVE, "--policies", "mark,mark"], "names a policy twice"),
        (["plan", *SERVE], "--trace"),
        (["reproduce", "table9"], "table9"),
        (["reproduce", "table2", "--report", "r.html"], "--report: only a figure has a page: table2"),
        (["trace"], "ACTION"),
        (["check", "no-such-file.csv"], "no-such-file.csv"),
        (["catalog", "show", "aws-1999"], "aws-1999"),
    ],
)
def test_wrong_command_lines_are_one_line_and_exit_2(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert said in one_line(captured.err)
    assert captured.out == ""


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "mark compare" in capsys.readouterr().out


def test_version_and_help_are_no_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["simulate", "--help"]) == 0
    assert capsys.readouterr().err == ""


RUN_OPTIONS = {
    *("--service", "--policy", "--predictor", "--catalog", "--profile", "--markets", "--scale", "--start"),
    *("--duration", "--train", "--gaps", "--seed", "--spot-trace", "--cold-start", "--log-filter"),
    *("--spot-first-hour-free", "--json", "--report", "--fail-below-slo"),
}


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("simulate", RUN_OPTIONS),
        ("compare", RUN_OPTIONS | {"--policies"}),
        ("bound", RUN_OPTIONS),
        ("plan", RUN_OPTIONS | {"--trace", "--at"}),
        ("reproduce", {"--trace", "--spot-trace", "--json", "--report"}),
        ("pipeline trace", {"--queries", "--out", "--json"}),
    ],
)
def test_every_option_of_the_stable_interface_stands_in_the_usage(
    command: str, options: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--help"]) == 0
    shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", capsys.readouterr().out))
    assert options <= shown


def test_every_command_explains_itself() -> None:
    text = parser().format_help()
    for command in (
        "simulate",
        "compare",
        "bound",
        "plan",
        "reproduce",
        "trace",
        "catalog",
        "init",
        "check",
        "pipeline",
    ):
        assert re.search(rf"^ +{command}\b", text, re.M)


def test_help_starts_quickly_because_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from mark.cli.main import main; main(['--help']);"
        "heavy = {'numpy', 'numba', 'plotly', 'statsmodels', 'pandas', 'rich', 'highspy'} & set(sys.modules);"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "mark.cli.main", "catalog", "show", "aws-2019"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_errors_that_cannot_be_said_keep_their_code() -> None:
    """Standard error is on a full disk. The code is not ours for faults, and not 120, Python's for a failed flush."""
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "mark.cli.main", "catalog", "show", "nowhere"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=full, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_error(closed: str) -> None:
    """Otherwise a file of the command would get the number of the stream."""
    command = f'exec "$0" -m mark.cli.main catalog show aws-2019 {closed}'
    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))


@pytest.mark.parametrize(("before", "after"), [(None, "1"), ("3", "3")])
def test_libraries_use_one_thread_unless_the_user_says_otherwise(
    before: str | None, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is enough, because runs are spread over processes."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", before or "")
    if before is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    assert main(["catalog", "show"]) == 0
    assert os.environ["OMP_NUM_THREADS"] == after


@pytest.fixture
def greeting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a package with the commands `greet`, before `bound`, and `wave`, and one with the name of a mark command."""
    info = tmp_path / "greeting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[mark.commands]\ngreet = greeting_commands:GREET\nwave = greeting_commands:WAVE\nplan = nowhere:PLAN\n"
    )
    (tmp_path / "greeting_commands.py").write_text(
        "from mark.cli.commands import CliEntry\n"
        "GREET = CliEntry('greeting_greet', 'say hello', before='bound')\n"
        "WAVE = CliEntry('greeting_wave', 'wave a hand', 'hands')\n"
    )
    (tmp_path / "greeting_greet.py").write_text(
        "def add_to(parser):\n"
        "    parser.add_argument('--name', required=True)\n"
        "    parser.set_defaults(run=run)\n"
        "def run(args):\n"
        "    print(f'hello {args.name}')\n"
        "    return 0\n"
    )
    (tmp_path / "greeting_wave.py").write_text("import no_hands\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("greeting_commands", "greeting_greet", "greeting_wave"):
        monkeypatch.delitem(sys.modules, module, raising=False)


def test_registered_commands_run_as_those_of_mark(greeting: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet", "--name", "you"]) == 0
    assert capsys.readouterr().out == "hello you\n"
    assert main(["greet", "--nam", "you"]) == 2
    assert "unrecognized arguments: --nam, did you mean --name?" in one_line(capsys.readouterr().err)
    assert main(["gret"]) == 2
    assert "did you mean greet?" in one_line(capsys.readouterr().err)
    assert main(["wave"]) == 2
    assert "mark wave: needs no_hands (pip install 'mark-serving[hands]')" in one_line(capsys.readouterr().err)


def test_help_lists_registered_commands_without_importing_theirs(
    greeting: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    listed = re.findall(r"^    ([a-z]+)\s", text, re.M)
    assert listed.index("greet") == listed.index("bound") - 1
    assert listed[-1] == "wave"
    assert listed.count("plan") == 1
    assert "say hello" in text
    assert not {"greeting_greet", "greeting_wave"} & sys.modules.keys()


def test_commands_of_mark_run_without_a_look_at_registered_ones(
    greeting: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--help"]) == 0
    assert "greeting_commands" not in sys.modules
    capsys.readouterr()


@pytest.mark.parametrize(
    ("registered", "said"),
    [
        ("nowhere:COMMAND", "command greet: does not load (No module named 'nowhere'): nowhere:COMMAND"),
        ("os:sep", "command greet: is no mark.cli.commands.CliEntry: str"),
    ],
)
def test_a_command_that_cannot_be_loaded_is_named(
    registered: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    info = tmp_path / "greeting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[mark.commands]\ngreet = {registered}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["greet"]) == 2
    assert said in one_line(capsys.readouterr().err)


def test_progress_of_a_command_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("time,requests\n" + "".join(f"{1_760_000_040 + 60 * n},60\n" for n in range(180)))
    assert main(["trace", "info", str(tmp_path / "t.csv")]) == 0
    assert watched.get() is None
