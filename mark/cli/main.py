"""The command `mark`: usage, and from every ending to its exit code.

    0  done                      2  bad input, or a wrong command line     4  SLO missed, with --fail-below-slo
    1  a fault of ours           3  infeasible: no offer meets the SLO     130  interrupted from the keyboard

Errors are one line on stderr. Only the module of the command that is given is imported, so `mark --help` is
quick (0.1 s; with all of them it takes a second).
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from mark.cli.arguments import refuse_overwriting
from mark.cli.commands import CliEntry, commands_for
from mark.cli.fields import with_flags
from mark.domain.errors import BadInput, Infeasible, MarkError, did_you_mean
from mark.domain.extras import missing
from mark.domain.version import VERSION

_UNKNOWN = "unrecognized arguments: "
_MISSING = "the following arguments are required: "
_CHOICE = re.compile(r"invalid choice: '?([^' ]+)'? \(choose from (.*)\)")

_EPILOG = """\
start here:
  mark compare synthetic:diurnal --service inception-v3-2026
  mark compare my-access.log --service inception-v3-2026 --report report.html

exit codes: 0 done, 1 a fault of ours, 2 bad input, 3 no offer meets the SLO, 4 SLO missed (--fail-below-slo)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # Before numpy is there: runs are spread over processes, whose threads would only be in each other's way.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return guarded(lambda: _run(sys.argv[1:] if argv is None else argv))


def guarded(action: Callable[[], int]) -> int:
    """Run `action`, which returns an exit code, and turn each way it can fail into one line and a code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name need not be text that the terminal knows
    try:
        code = action()
        sys.stdout.flush()  # a closed pipe shows here, not at interpreter exit where it cannot be caught
        return code
    except BadInput as error:
        if error.__cause__ is not None and os.environ.get("MARK_TRACEBACK") == "1":
            raise  # a plug-in's code failed (a predictor, say), and its author wants to see where
        return _failed(with_flags(error), 2)
    except ModuleNotFoundError as error:  # of a library that only some uses of a command need
        refusal = missing(error, "this command")
        return _fault(error) if refusal is None else _failed(str(refusal), 2)
    except Infeasible as error:
        from mark.studies.report.promise_help_report import (
            tail_words,  # here: a command that succeeds has no need of it
        )

        return _failed(f"{error}{tail_words(error.helps)}", 3)
    except MarkError as error:
        return _failed(str(error), 1)
    except BrokenPipeError:
        # The reader has seen enough (`mark ... | head`). What is still buffered goes nowhere, silently.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            return _fault(error)
        with suppress(OSError, ValueError):  # what is still buffered cannot be kept either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _failed("the output cannot be written: no space left on device", 1)
    except Exception as error:
        return _fault(error)
    finally:
        _forget_unwritten()


def every_command() -> _Parser:
    """The command line with the arguments of all commands; those whose extra is not installed have none."""
    known = commands_for(None)
    top, added = _top(known)
    for name, command in known.items():
        with suppress(BadInput):
            _declare(name, added[name], command)
    return top


def parser(given: str | None = None) -> _Parser:
    """The command line, with the arguments of the command that is given.

    Raises BadInput where the command needs an extra that is not installed.
    """
    known = commands_for(given)
    top, added = _top(known)
    if given in added:
        _declare(given, added[given], known[given])
    return top


def _top(known: Mapping[str, CliEntry]) -> tuple[_Parser, dict[str, argparse.ArgumentParser]]:
    """The command line, and the commands by name, without their arguments."""
    top = _Parser(
        prog="mark",
        description="What would this traffic cost, and would the latency promise hold? Serve machine-learning models "
        "at the lowest cloud bill that still keeps it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"mark {VERSION}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    return top, {
        name: commands.add_parser(name, help=command.help, allow_abbrev=False) for name, command in known.items()
    }


def _declare(name: str, added: argparse.ArgumentParser, command: CliEntry) -> None:
    try:
        import_module(command.module).add_to(added)
    except ModuleNotFoundError as error:
        if command.extra and not (error.name or "").split(".")[0].startswith("mark"):
            raise BadInput(f"needs {error.name}: pip install 'mark-serving[{command.extra}]'", f"mark {name}") from None
        if (refusal := missing(error, f"mark {name}")) is None:
            raise
        raise refusal from None


class _Parser(argparse.ArgumentParser):
    words: Sequence[str] = ()  # of the command line

    def error(self, message: str) -> NoReturn:
        """One line, where argparse prints the usage as well; with the option or choice that was meant, perhaps."""
        asked = self
        if message.startswith(_UNKNOWN):
            *_, asked = given = list(self.given())
            known = [option for parser in given for option in parser._option_string_actions]
            words = message.removeprefix(_UNKNOWN).split()
            message = _UNKNOWN + ", ".join(word + did_you_mean(word.split("=")[0], known) for word in words)
            if any(map(os.path.isfile, words)):
                message += "; several files are one TRACE as a quoted pattern, 'logs/*.gz'"
        elif message.startswith(_MISSING) and (typos := self._typos(message.removeprefix(_MISSING).split(", "))):
            message = _UNKNOWN + ", ".join(typos)
        elif found := _CHOICE.search(message):
            message += did_you_mean(found[1], found[2].replace("'", "").split(", "))
        self.exit(2, f"mark: error: {' '.join(message.split())} (see {asked.prog} --help)\n")

    def _typos(self, missing: Sequence[str]) -> list[str]:
        """Words of the command line that are almost one of the options that are missing."""
        known = self._option_string_actions
        words = [word.split("=")[0] for word in self.words if word.startswith("--")]
        return [word + hint for word in words if word not in known and (hint := did_you_mean(word, missing))]

    def _print_message(self, message: str, file: Any = None) -> None:
        """Of what was asked for (help, version) a failure is told; argparse hides it."""
        if file is not None and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)

    def given(self) -> Iterator[_Parser]:
        """This parser and, of the commands below it, those on the command line."""
        yield self
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, parser in action.choices.items():
                    if name in self.words:
                        parser.words = self.words
                        yield from parser.given()


def _run(argv: Sequence[str]) -> int:
    top = parser(argv[0] if argv else None)
    top.words = argv
    for _ in top.given():  # each gets the words
        pass
    try:
        args = top.parse_args(argv)
    except SystemExit as ending:  # --help, --version and usage errors have said what they had to say
        return ending.code if isinstance(ending.code, int) else 0
    if args.command is None:
        top.print_help()
        return 0
    refuse_overwriting(args)
    run: Callable[[argparse.Namespace], int] = args.run
    if not hasattr(args, "skip_bad_lines"):
        return run(args)
    from mark.cli.reading import kept_pipe  # here: most of what a command without traffic does not need

    with kept_pipe(args):
        return run(args)


def _failed(message: str, code: int) -> int:
    with suppress(OSError, ValueError):  # the code says it too
        print(f"mark: {'error: ' if code != 130 else ''}{' '.join(message.split())}", file=sys.stderr)
    return code


def _fault(error: Exception) -> int:
    if os.environ.get("MARK_TRACEBACK") == "1":
        raise error
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return _failed(f"a fault of ours, sorry: {what[:300]} (MARK_TRACEBACK=1 shows where)", 1)


def _forget_unwritten() -> None:
    """What standard error did not take would be tried again at the very end, and make the exit code 120."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


if __name__ == "__main__":
    sys.exit(main())
