"""Several vLLM engines that share the rollouts of a job, each in a process of its own with its own GPUs.

    python -m turncredit.policy.engines.several SOCKET SLOTS [keep]      one of the processes, started by `Engines`

Slots are dealt out in turn, and a rollout keeps its slot, so an engine's prefix cache has what it has read of it. A
response depends on its request's seed and not on the engine: the rollouts are those of one engine, but for rounding.
The processes talk in JSON over a socket.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

import turncredit
from turncredit.data.process_lifetime import end_with_parent
from turncredit.errors import UserError
from turncredit.policy.engines import vllm
from turncredit.policy.sampling import Request, Response, sampled

#: Seconds until an engine that is needed no more has to be gone.
ENDS_WITHIN = 30.0


class Engines:
    """vLLM engines that the stages of one process use one after another, as `turncredit.policy.engines.vllm.Engine`.

    count   engines; they start at the same time, when they are first used
    keep    whether another stage may follow
    slots   sequences at a time, over all engines, that they have room for from their start
    """

    def __init__(self, count: int, *, keep: bool = True, slots: int = 1):
        self.count, self.keep, self.slots = count, keep, slots
        self.connections: list[Connection] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def use(self, *, slots: int, gpus: int, **policy: Any) -> None:
        """Give every engine the weights of a policy and its share of the slots. Returns when all of them can sample."""
        if not self._processes:
            self._start(gpus)
        for connection in self.connections:
            self.send(connection, "use", slots=_share(slots, self.count), gpus=gpus, **policy)
        for connection in self.connections:
            while "used" not in self.receive(connection):
                pass  # answers to requests that have been cancelled

    def _start(self, gpus: int) -> None:
        for seen in _devices(self.count, gpus):
            ours, theirs = socket.socketpair()
            command = [sys.executable, "-m", __name__, str(theirs.fileno()), str(_share(self.slots, self.count))]
            root = str(Path(turncredit.__file__).parents[1])
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
            if seen is not None:
                environment["CUDA_VISIBLE_DEVICES"] = seen
            keep = ["keep"] if self.keep else []
            process = subprocess.Popen(
                [*command, *keep], env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
            self._processes.append(process)
            theirs.close()  # the connection then closes when the process ends
            self.connections.append(Connection(ours.detach()))

    def send(self, connection: Connection, what: str, **given: Any) -> None:
        """Send a message to one of the engines. Raises as `receive`."""
        try:
            connection.send_bytes(json.dumps([what, given]).encode())
        except (BrokenPipeError, ConnectionResetError):
            self.receive(connection)  # what it said before it ended
            raise

    def receive(self, connection: Connection) -> dict[str, Any]:
        """The next message of one of the engines. Raises its UserError, or RuntimeError if it failed."""
        try:
            message = json.loads(connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            number = self.connections.index(connection)
            status = self._processes[number].wait()
            raise RuntimeError(f"vLLM engine {number + 1} of {self.count} ended early, with status {status}") from None
        if "mistake" in message:
            raise UserError(message["mistake"])
        if "failed" in message:
            raise RuntimeError(f"vLLM engine {self.connections.index(connection) + 1}: {message['failed']}")
        return message

    def sleep(self) -> None:
        """Give the GPUs' memory to other stages, until the engines are used again."""
        for connection in self.connections:
            self.send(connection, "sleep")
        for connection in self.connections:
            while "asleep" not in self.receive(connection):
                pass

    def end(self) -> None:
        """End the engines, if they have been started."""
        for connection in self.connections:
            connection.close()  # each ends when its connection is closed
        for process in self._processes:
            try:
                process.wait(ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.connections, self._processes = [], []

    def __del__(self) -> None:
        self.end()


class Several:
    """Samples with several vLLM engines for one policy, as `turncredit.policy.engines.vllm.Vllm` with one."""

    def __init__(self, folder: str, *, slots: int, engines: Engines, eos_id: int, **policy: Any):
        self.slots, self.eos_id = slots, eos_id
        self._engines = engines
        engines.use(folder=str(folder), slots=slots, eos_id=eos_id, **policy)
        self._numbers = count()
        self._slots: dict[int, int] = {}  # of the requests that are unanswered, by their numbers

    def submit(self, request: Request, temperature: float, max_new: int) -> None:
        """Send a request to the engine that has its slot."""
        number = next(self._numbers)
        self._slots[number] = request.slot
        self._engines.send(
            self._engines.connections[request.slot % self._engines.count],
            "submit",
            number=number,
            slot=request.slot // self._engines.count,
            ids=list(request.ids),
            reset=request.reset,
            uniform=float(request.uniforms[0]),
            temperature=temperature,
            max_new=max_new,
        )

    def answered(self, *, wait: bool) -> list[tuple[int, Response]]:
        """Slots with the responses that have arrived; `wait`: until there is one. Otherwise after 20 ms at the most."""
        found: list[tuple[int, Response]] = []
        while self._slots and not found:
            for connection in _waited(self._engines.connections, None if wait else 0.02):
                for number, ids, logprobs in self._engines.receive(connection).get("answers", ()):
                    if number in self._slots:
                        found.append((self._slots.pop(number), Response(ids, logprobs)))
            if not wait:
                break
        return found

    def cancel(self) -> None:
        """Drop all requests that are unanswered."""
        if self._slots:
            self._slots = {}
            for connection in self._engines.connections:
                self._engines.send(connection, "cancel")

    def sample(self, requests: Sequence[Request], temperature: float, max_new: int) -> list[Response]:
        """One response for each request."""
        return sampled(self, requests, temperature, max_new)


def _waited(connections: Sequence[Connection], seconds: float | None) -> list[Connection]:
    return [one for one in wait(connections, seconds) if isinstance(one, Connection)]


def _share(slots: int, engines: int) -> int:
    return -(-slots // engines)


def _devices(engines: int, gpus: int) -> list[str | None]:
    """CUDA_VISIBLE_DEVICES of each engine: its own among the GPUs that this process sees; None without GPUs.

    Raises UserError if there are too few.
    """
    import torch

    if not torch.cuda.is_available():
        return [None] * engines
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = given.split(",") if given else [str(number) for number in range(torch.cuda.device_count())]
    if len(names) < engines * gpus:
        raise UserError(
            f"policy.sample_engines is {engines} with {gpus} GPUs each (sample_gpus), but this job sees {len(names)}; "
            "ask for as many (resources), or lower sample_engines"
        )
    return [",".join(names[first : first + gpus]) for first in range(0, engines * gpus, gpus)]


# ---------------------------------------------------------------- one of the processes


class _Served:
    """The engine of this process, which does what messages say."""

    def __init__(self, connection: Connection, *, slots: int, keep: bool):
        self._connection = connection
        self._messages: SimpleQueue[tuple[str, dict[str, Any]] | None] = SimpleQueue()
        self._engine = vllm.Engine(keep=keep, slots=slots)
        self._sampler: vllm.Vllm | None = None
        self._numbers: dict[int, int] = {}  # of the requests that are unanswered, by their slots

    def work(self) -> None:
        """Do what messages say until the connection is closed; between them, sample."""
        threading.Thread(target=self._read, daemon=True).start()
        while True:
            while not self._numbers or not self._messages.empty():
                message = self._messages.get()
                if message is None:
                    return
                what, given = message
                getattr(self, f"_{what}")(**given)
            assert self._sampler is not None
            answers = self._sampler.answered(wait=False)
            if answers:
                self._tell(answers=[[self._numbers.pop(slot), one.ids, one.logprobs] for slot, one in answers])

    def _read(self) -> None:
        """Take messages as they come: who sends them must never wait, as this process may wait for it to read."""
        try:
            while True:
                what, given = json.loads(self._connection.recv_bytes())
                self._messages.put((what, given))
        except (EOFError, OSError):
            self._messages.put(None)

    def _tell(self, **message: Any) -> None:
        self._connection.send_bytes(json.dumps(message).encode())

    def _use(self, *, folder: str, **policy: Any) -> None:
        self._sampler = vllm.Vllm(folder, engine=self._engine, **policy)
        self._tell(used=True)

    def _submit(
        self, *, number: int, slot: int, ids: list[int], reset: bool, uniform: float, temperature: float, max_new: int
    ) -> None:
        assert self._sampler is not None
        self._numbers[slot] = number
        self._sampler.submit(Request(slot, ids, reset, np.array([uniform])), temperature, max_new)

    def _cancel(self) -> None:
        assert self._sampler is not None
        self._sampler.cancel()
        self._numbers = {}

    def _sleep(self) -> None:
        self._engine.sleep()
        self._tell(asleep=True)


def _serve(arguments: Sequence[str]) -> None:
    end_with_parent()
    connection = Connection(int(arguments[0]))
    try:
        _Served(connection, slots=int(arguments[1]), keep=arguments[2:] == ["keep"]).work()
    except (ConnectionResetError, BrokenPipeError):
        return  # the process that started this one needs it no more
    except UserError as error:
        connection.send_bytes(json.dumps({"mistake": str(error)}).encode())
    except Exception as error:
        traceback.print_exc()
        connection.send_bytes(json.dumps({"failed": f"{type(error).__name__}: {error}"}).encode())


if __name__ == "__main__":
    _serve(sys.argv[1:])
