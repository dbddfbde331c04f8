"""The command `mark`: usage, and from every ending to its exit code.

    0  done                      2  bad input, or a wrong command line     4  SLO missed, with --fail-below-slo
    1  a fault of ours           3  infeasible: no offer meets the SLO     130  interrupted from the keyboard

Errors are one line on stderr. Nothing heavy is imported here or by the commands' modules: `mark --help` is quick.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from mark.cli import (
    bound,
    catalog,
    check,
    compare,
    controller,
    deploy,
    forecast,
    gateway,
    init,
    plan,
    profile,
    reconcile,
    reproduce,
    serve,
    simulate,
    testbed,
    trace,
)
from mark.domain.errors import BadInput, Infeasible
from mark.version import VERSION

# In the order of a first visit.
_COMMANDS = (
    simulate,
    compare,
    reconcile,
    bound,
    plan,
    forecast,
    trace,
    catalog,
    init,
    check,
    profile,
    serve,
    gateway,
    controller,
    testbed,
    deploy,
    reproduce,
)

_EPILOG = """\
start here:
  mark compare synthetic:diurnal --service inception-v3
  mark compare my-access.log --service inception-v3 --report report.html

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
        sys.stdout.flush()  # a closed pipe shows here, not at interpreter exit where nobody catches it
        return code
    except BadInput as error:
        if error.__cause__ is not None and os.environ.get("MARK_TRACEBACK") == "1":
            raise  # somebody's code failed (a predictor, say), and its author wants to see where
        return _failed(str(error), 2)
    except Infeasible as error:
        return _failed(str(error), 3)
    except BrokenPipeError:
        # The reader has seen enough (`mark ... | head`). What is still buffered goes nowhere, silently.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    except Exception as error:
        if os.environ.get("MARK_TRACEBACK") == "1":
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())
        return _failed(f"a fault of ours, sorry: {what[:300]} (MARK_TRACEBACK=1 shows where)", 1)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
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
    for command in _COMMANDS:
        command.add_to(commands)
    return top


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, where argparse prints the usage as well."""
        self.exit(2, f"mark: error: {' '.join(message.split())} (see {self.prog} --help)\n")


def _run(argv: Sequence[str]) -> int:
    top = parser()
    try:
        args = top.parse_args(argv)
    except SystemExit as ending:  # --help, --version and usage errors have said what they had to say
        return ending.code if isinstance(ending.code, int) else 0
    if args.command is None:
        top.print_help()
        return 0
    run: Callable[[argparse.Namespace], int] = args.run
    return run(args)


def _failed(message: str, code: int) -> int:
    print(f"mark: {'error: ' if code != 130 else ''}{' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
