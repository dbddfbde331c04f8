"""The testbed's machines as real processes: a `mark serve` each, on its own loopback address, with its own IMDS.

A bouncer starts with its machine's boot, and its workers wait for the end of the boot (`--pace`). So it cannot be ready
earlier, and it is later only if this computer is slower than the played boot (`MachineState.late_s`). Like an EC2
instance's service manager, this module restarts a crashed bouncer. The bouncer's workers play slow periods and hangs
(`MARK_FAULT_STREAM`); a crash of the machine kills the bouncer for good.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO

from mark.profiling.played_faults import FAULT_STREAM
from mark.profiling.replay import SPEED_FILE
from mark.serving.worker.loaders import READY_AT
from mark_infra.testbed.environment import of_aws
from mark_infra.testbed.launch import command
from mark_infra.testbed.machines_port import Machine, Machines, MachineState
from mark_infra.testbed.metadata import PORT, Metadata, serve

# As with systemd's Restart=on-failure and RestartPreventExitStatus=2.
RESTART_S = 1.0
_BAD_INPUT = 2  # a restart would end the same way
_POLL_S = 0.05  # between two checks of readiness, once the bouncer should be ready

log = logging.getLogger("mark.testbed")


@dataclass(frozen=True, slots=True)
class ServedProgram:
    """The program on a service's machines: `mark serve` of this file, with these further options."""

    service_file: Path
    options: Sequence[str] = ()


@dataclass(slots=True)
class _LocalMachine:
    """A machine from its boot to its end. Changed only on the loop's thread; `running` is replaced as a whole."""

    running: MachineState
    metadata: Metadata
    ready_at_s: float  # Unix
    end: asyncio.Event = field(default_factory=asyncio.Event)
    crash: asyncio.Event = field(default_factory=asyncio.Event)


class Processes:
    """The port `Machines` on this computer. A context: at its end no process is left.

    `programs` by service, or by service and release as `SERVICE@RELEASE`. `variables` extend the environment of every
    bouncer, `folder` has log and speed files. The thread that enters it must live as long as the processes, which die
    with it.
    """

    def __init__(
        self,
        programs: Mapping[str, ServedProgram],
        folder: Path,
        *,
        variables: Mapping[str, str] | None = None,
        region: str = "us-east-1",
        port: int = 8080,
        metadata_port: int = PORT,
        grace_s: float = 40.0,
    ) -> None:
        self._programs, self._folder, self._region = programs, folder, region
        self._port, self._metadata_port, self._grace_s = port, metadata_port, grace_s
        self._environment = of_aws(os.environ, region) | dict(variables or {})
        self._lock = threading.Lock()
        self._machines: dict[str, _LocalMachine] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="machines", daemon=True)

    def __enter__(self) -> Processes:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all machines, wait for their ends, and stop."""
        for instance_id in self.running():
            self.end(instance_id)
        asyncio.run_coroutine_threadsafe(self._all_gone(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def boot(self, machine: Machine) -> None:
        """Boot a machine, see `Machines`. Raises ValueError also for a service without a program."""
        of_release = self._programs.get(f"{machine.service}@{machine.release}")
        program, now_s = of_release or self._programs.get(machine.service), time.time()
        if program is None:
            raise ValueError(f"nothing is known to run for {machine.service}")
        local = _LocalMachine(MachineState(machine), Metadata(machine, self._region, now_s), now_s + machine.boot_s)
        with self._lock:
            for there in (local.running.machine for local in self._machines.values()):
                if there.instance_id == machine.instance_id or there.address == machine.address:
                    raise ValueError(f"{there.instance_id} on {there.address} is still there")
            self._speed_file(machine).write_text("1")
            self._machines[machine.instance_id] = local
        self._begin(self._run(local, program))

    def announce(self, instance_id: str, action: str, at_unix_s: float) -> None:
        """See `Machines`."""
        self._machines[instance_id].metadata.announce(action, at_unix_s)

    def set_speed(self, instance_id: str, speed: float) -> None:
        """Set the speed from the next batch on, see `Machines`."""
        file = self._speed_file(self._machines[instance_id].running.machine)
        written = file.with_suffix(".new")
        written.write_text(f"{speed:g}")
        written.replace(file)  # atomically, so that readers always find a number

    def crash(self, instance_id: str) -> None:
        """See `Machines`."""
        self._loop.call_soon_threadsafe(self._machines[instance_id].crash.set)

    def end(self, instance_id: str) -> None:
        """See `Machines`."""
        local = self._machines.get(instance_id)
        if local is not None:
            self._change(local, ends=True)
            self._loop.call_soon_threadsafe(local.end.set)

    def running(self) -> Mapping[str, MachineState]:
        """See `Machines`."""
        with self._lock:
            return {instance_id: local.running for instance_id, local in self._machines.items()}

    # --- on the loop's thread

    def _begin(self, coroutine: Coroutine[None, None, None]) -> None:
        def begin() -> None:
            task = self._loop.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._loop.call_soon_threadsafe(begin)

    async def _all_gone(self) -> None:
        while others := self._tasks - {asyncio.current_task()}:
            await asyncio.wait(others)

    async def _run(self, local: _LocalMachine, program: ServedProgram) -> None:
        machine = local.running.machine
        imds = None
        try:
            imds = await serve(local.metadata, machine.address, self._metadata_port)
            with (self._folder / f"{machine.instance_id}.log").open("ab") as output:
                await self._keep(local, program, output)
            await local.end.wait()
        except Exception:
            log.exception("machine %s on %s", machine.instance_id, machine.address)
            await local.end.wait()
        finally:
            if imds is not None:
                await imds.close(1.0)
            self._speed_file(machine).unlink(missing_ok=True)
            with self._lock:
                del self._machines[machine.instance_id]

    async def _keep(self, local: _LocalMachine, program: ServedProgram, output: IO[bytes]) -> None:
        """Run the machine's bouncer until the machine ends or crashes, or the bouncer ends well or cannot serve."""
        machine = local.running.machine
        while not (local.end.is_set() or local.crash.is_set()):
            bouncer = await asyncio.create_subprocess_exec(
                *command(*self._command(machine, program)),
                env=self._environment_of(local),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            ready = asyncio.create_task(self._see_ready(local))
            try:
                status = await self._until_end(bouncer, local)
            finally:
                ready.cancel()
            if local.crash.is_set():
                log.info("machine %s has crashed", machine.instance_id)
                return
            if local.end.is_set() or status == 0:
                return  # drained on request, by us or by a notice
            self._change(local, crashes=local.running.crashes + 1)
            log.warning("the bouncer of %s ended with status %d", machine.instance_id, status)
            if status == _BAD_INPUT:
                log.error("the bouncer of %s is not started again", machine.instance_id)
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(local.end.wait(), RESTART_S)

    async def _until_end(self, bouncer: asyncio.subprocess.Process, local: _LocalMachine) -> int:
        """Return the bouncer's exit status, after it has ended by itself or with the machine."""
        exited, ended = asyncio.ensure_future(bouncer.wait()), asyncio.ensure_future(local.end.wait())
        crashed = asyncio.ensure_future(local.crash.wait())
        await asyncio.wait((exited, ended, crashed), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        crashed.cancel()
        if local.crash.is_set():
            with suppress(ProcessLookupError):
                bouncer.kill()  # its workers end with it
        elif not exited.done():
            with suppress(ProcessLookupError):
                bouncer.terminate()
            await asyncio.wait((exited,), timeout=self._grace_s)
            if not exited.done():
                log.warning("the bouncer of %s is killed", local.running.machine.instance_id)
                with suppress(ProcessLookupError):
                    bouncer.kill()
        return await exited

    async def _see_ready(self, local: _LocalMachine) -> None:
        machine = local.running.machine
        await asyncio.sleep(max(0.0, local.ready_at_s - time.time()))
        while not await _is_ready(machine.address, self._port):
            await asyncio.sleep(_POLL_S)
        if local.running.late_s is None:
            late_s = max(0.0, time.time() - local.ready_at_s)
            log.info("machine %s is ready, %.2f s after its boot", machine.instance_id, late_s)
            self._change(local, late_s=late_s)

    def _change(
        self, local: _LocalMachine, *, late_s: float | None = None, ends: bool = False, crashes: int = 0
    ) -> None:
        with self._lock:
            was = local.running
            local.running = MachineState(
                was.machine,
                was.late_s if late_s is None else late_s,
                was.ends or ends,
                max(was.crashes, crashes),
            )

    def _command(self, machine: Machine, program: ServedProgram) -> list[str]:
        return [
            *(sys.executable, "-m", "mark.cli.main", "serve", str(program.service_file)),
            *("--host", machine.address, "--port", str(self._port), "--instance", machine.instance_type, "--pace"),
            *("--watch-interruptions", *program.options),
        ]

    def _environment_of(self, local: _LocalMachine) -> dict[str, str]:
        machine = local.running.machine
        return self._environment | {
            **({} if machine.faults is None else {FAULT_STREAM: machine.faults.as_text()}),
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{machine.address}:{self._metadata_port}",
            READY_AT: f"{local.ready_at_s:.6f}",
            SPEED_FILE: str(self._speed_file(machine)),
        }

    def _speed_file(self, machine: Machine) -> Path:
        return self._folder.resolve() / f"{machine.instance_id}.speed"


async def _is_ready(address: str, port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    try:
        writer.write(b"GET /v2/health/ready HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n\r\n" % address.encode())
        return b" 200 " in await reader.readline()
    except OSError:
        return False
    finally:
        writer.close()


_: type[Machines] = Processes
