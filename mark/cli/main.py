"""The command `mark`: usage, and the exit code of every ending.

  0  done                      2  bad input, or a wrong command line     4  SLO missed, with --fail-below-slo
  1  a fault of ours           3  infeasible: no offer meets the SLO     130  interrupted from the keyboard

Errors are one line on stderr. Only the module of the given command is imported, so `mark --help` takes 0.1 s and not
the second that importing all of them takes.
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
from contextvars import copy_context
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
    # Set before numpy is imported: runs are spread over processes, and numpy's threads in each would compete for cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _open_standard_streams()
    context = copy_context()  # a command's progress must not go on into the next one of this process
    return guarded(lambda: context.run(_run, sys.argv[1:] if argv is None else argv))


def guarded(action: Callable[[], int]) -> int:
    """Run `action`, which returns an exit code, and turn each failure into one line and a code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for file names that the terminal cannot show
    try:
        code = action()
        sys.stdout.flush()  # a closed pipe must raise here, because at interpreter exit it cannot be caught
        return code
    except BadInput as error:
        if error.__cause__ is not None and os.environ.get("MARK_TRACEBACK") == "1":
            raise  # code of a plug-in (a predictor, say) failed, and its author needs the traceback
        return _failed(with_flags(error), 2)
    except ModuleNotFoundError as error:  # a library that only some uses of a command need
        refusal = missing(error, "this command")
        return _fault(error) if refusal is None else _failed(str(refusal), 2)
    except Infeasible as error:
        from mark.studies.report.promise_help_report import (
            tail_words,  # imported here because a successful command does not need it
        )

        return _failed(f"{error}{tail_words(error.helps)}", 3)
    except MarkError as error:
        return _failed(str(error), 1)
    except BrokenPipeError:
        # The reader closed the pipe (`mark ... | head`), so the buffered output is discarded silently.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            return _fault(error)
        with suppress(OSError, ValueError):  # the buffered output is lost too
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _failed("the output cannot be written: no space left on device", 1)
    except Exception as error:
        return _fault(error)
    finally:
        _forget_unwritten()


def _open_standard_streams() -> None:
    """Open closed standard streams on the null device.

    Otherwise the next opened file or socket would get the stream's number, and printed text would be written into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)  # for child processes too
            setattr(sys, name, os.fdopen(number, mode))


def every_command() -> _Parser:
    """Return the command line with the arguments of all commands. Commands without their extra get none."""
    known = commands_for(None)
    top, added = _top(known)
    for name, command in known.items():
        with suppress(BadInput):
            _declare(name, added[name], command)
    return top


def parser(given: str | None = None) -> _Parser:
    """Return the command line, with the arguments of the given command only.

    Raises BadInput if the command needs an extra that is not installed.
    """
    known = commands_for(given)
    top, added = _top(known)
    if given in added:
        _declare(given, added[given], known[given])
    return top


def _top(known: Mapping[str, CliEntry]) -> tuple[_Parser, dict[str, argparse.ArgumentParser]]:
    """Return the command line and its commands by name, without their arguments."""
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
            raise BadInput(
                f"needs {error.name} (pip install 'mark-serving[{command.extra}]')", f"mark {name}"
            ) from None
        if (refusal := missing(error, f"mark {name}")) is None:
            raise
        raise refusal from None


class _Parser(argparse.ArgumentParser):
    words: Sequence[str] = ()  # of the command line

    def error(self, message: str) -> NoReturn:
        """Exit with one line, without argparse's usage text, and suggest the option or choice that was meant."""
        asked = self
        if message.startswith(_UNKNOWN):
            *_, asked = given = list(self.given())
            known = [option for parser in given for option in parser._option_string_actions]
            words = message.removeprefix(_UNKNOWN).split()
            message = _UNKNOWN + ", ".join(word + did_you_mean(word.split("=")[0], known) for word in words)
            reads_trace = any(action.metavar == "TRACE" for parser in given for action in parser._actions)
            if reads_trace and any(map(os.path.isfile, words)):
                message += "; several files are one TRACE as a quoted pattern, 'logs/*.gz'"
            if any(word.startswith("--slo-ms") for word in words):
                message += "; the promise is slo_ms in the service file, and `mark frontier --slo-ms` tries others"
        elif message.startswith(_MISSING) and (typos := self._typos(message.removeprefix(_MISSING).split(", "))):
            message = _UNKNOWN + ", ".join(typos)
        elif found := _CHOICE.search(message):
            message += did_you_mean(found[1], found[2].replace("'", "").split(", "))
        self.exit(2, f"mark: error: {' '.join(message.split())} (see {asked.prog} --help)\n")

    def _typos(self, missing: Sequence[str]) -> list[str]:
        """Return the words of the command line that are almost one of the missing options."""
        known = self._option_string_actions
        words = [word.split("=")[0] for word in self.words if word.startswith("--")]
        return [word + hint for word in words if word not in known and (hint := did_you_mean(word, missing))]

    def _print_message(self, message: str, file: Any = None) -> None:
        """Raise if requested output (help, version) cannot be written; argparse hides such a failure."""
        if file is not None and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)

    def given(self) -> Iterator[_Parser]:
        """Yield this parser and the parsers of the commands below it that are on the command line."""
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
    for _ in top.given():  # each parser gets the words
        pass
    try:
        args = top.parse_args(argv)
    except SystemExit as ending:  # --help, --version and usage errors have already printed their message
        return ending.code if isinstance(ending.code, int) else 0
    if args.command is None:
        top.print_help()
        return 0
    refuse_overwriting(args)
    run: Callable[[argparse.Namespace], int] = args.run
    if not hasattr(args, "skip_bad_lines"):
        return run(args)
    from mark.cli.reading import kept_pipe  # imported here because a command without traffic needs little of it

    with kept_pipe(args):
        return run(args)


def _failed(message: str, code: int) -> int:
    with suppress(OSError, ValueError):  # the exit code reports the failure too
        print(f"mark: {'error: ' if code != 130 else ''}{' '.join(message.split())}", file=sys.stderr)
    return code


def _fault(error: Exception) -> int:
    if os.environ.get("MARK_TRACEBACK") == "1":
        raise error
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return _failed(f"a fault of ours, sorry: {what[:300]} (MARK_TRACEBACK=1 shows where)", 1)


def _forget_unwritten() -> None:
    """Discard the output that standard error did not take.

    Otherwise Python would retry at exit and change the exit code to 120.
    """
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


if __name__ == "__main__":
    sys.exit(main())
