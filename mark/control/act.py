"""Carry out commands through the ports, and record each with its outcome.

A decision is as old as its snapshot. Right before a command that cannot be undone, the fleet is read again, and a
command that no longer fits is dropped with a reason in the journal. The limits are checked again before a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mark.control.launcher import Launcher
from mark.control.ports import Cloud, Functions, Result, Store
from mark.control.snapshot import Outcome
from mark.domain.command import Command, Drain, Launch, Resume, Stop, Switch, Terminate, Warm
from mark.domain.errors import CloudError, LimitError, LostLease
from mark.domain.fleet import Phase

# Only booting, drained or stopped instances are terminated; serving instances are drained first.
_EXPECTED: dict[type[Command], tuple[Phase, ...]] = {
    Drain: (Phase.PENDING, Phase.READY),
    Terminate: (Phase.PENDING, Phase.DRAINING, Phase.STOPPED),
    Stop: (Phase.DRAINING,),
    Resume: (Phase.STOPPED,),
}


class Actor:
    """Carries out commands for one service. `leads` returns whether this process may act."""

    def __init__(
        self, cloud: Cloud, functions: Functions | None, store: Store, launcher: Launcher, leads: Callable[[], bool]
    ) -> None:
        self._cloud, self._functions, self._store = cloud, functions, store
        self._launcher, self._leads = launcher, leads

    def act(self, now_s: float, commands: Sequence[Command], *, substitute: bool) -> Iterator[Outcome]:
        """Carry out the commands in order; a refusal is an outcome, not an error. Raises StoreError and LostLease.

        With `substitute`, launch another offer immediately if the market falls short.
        """
        refused: set[str] = set()  # releases whose launches are all refused
        for command in commands:
            if not self._leads():
                raise LostLease("the lease ended before the command was carried out")
            if isinstance(command, Launch) and command.release in refused:
                text = "dropped: launches of its release were refused just now"
                self._store.record(now_s, command, text, Result.DROPPED, 0)
            elif isinstance(command, Launch):
                for outcome in self._launcher.launch(now_s, command, substitute=substitute):
                    if outcome.whole_release:
                        refused.add(command.release)
                    yield outcome
            else:
                yield self._carry_out(now_s, command)

    def _carry_out(self, now_s: float, command: Command) -> Outcome:
        result, text, refused = Result.DONE, "done", False
        try:
            if isinstance(command, Drain | Terminate | Stop | Resume):
                fleet = self._cloud.fleet()
                there = (*fleet.instances, *fleet.leaving)
                phase = next((i.phase for i in there if i.number == command.number), Phase.GONE)
                if phase not in _EXPECTED[type(command)]:
                    result, text = Result.DROPPED, f"dropped: it is {phase} by now"
                elif isinstance(command, Drain):
                    self._cloud.drain(command.number)
                elif isinstance(command, Terminate):
                    self._cloud.terminate(command.number)
                elif isinstance(command, Stop):
                    self._cloud.stop(command.number)
                elif (room := self._launcher.headroom(command.offer, now_s))[0] == 0:
                    result, text = Result.LIMIT, self._launcher.failed(LimitError(str(room[1])))
                else:
                    self._cloud.resume(command.number)
            elif isinstance(command, Warm):
                if self._functions is None:
                    result, text = Result.FAILED, "there are no functions"
                else:
                    started = self._functions.warm(command.environments)
                    if started == 0:
                        return Outcome(command, text, result)  # all were warm already, so the journal gets no line
                    text = f"done, {started} started"
            elif isinstance(command, Switch) and (
                self._functions is None or not self._functions.switch(command.release)
            ):
                return Outcome(command, text, result)  # the release lacks a function, so the old one stays
        except CloudError as error:
            result, text = Result.FAILED, self._launcher.failed(error)
            # EC2 may lack capacity or quota, or still be stopping the instance. Another one is launched instead.
            refused = isinstance(command, Resume)
        self._store.record(now_s, command, text, result, 0)
        return Outcome(command, text, result, refused)
