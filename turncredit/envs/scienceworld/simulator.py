"""The simulator: one Java process for all rollouts of this process.

The package's own client starts a Java process for each environment and lists all valid actions after each step, which
takes most of the time. Here a Java process has any number of worlds (the simulator's `PythonInterface`), and a step is
only a step. What its worlds share is swapped with the world (`Simulator.enter`): the state of the random numbers, the
counter of object ids, and the simplifications. So a world does what it would do alone in its process.

The process ends with this one, however this one ends: it reads from a pipe that then closes.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from turncredit.errors import UserError

T = TypeVar("T")

HEAP_MB = 2048
"""The most memory for the objects of all worlds of a process; a world takes about 11 (benchmarks/env/RESULTS.md)."""
_OPTIONS = (
    f"-Xmx{HEAP_MB}m",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",  # the simulator would take running out of memory for the agent's failure
    "-XX:-UsePerfData",
    "--add-opens=java.base/java.util=ALL-UNNAMED",  # to read the state of the random numbers
    # The simulator goes through sets of objects without a hash of their own. With Java's, the order, and so which of
    # them draws which random number, depends on what the process has done before; with a constant one it does not.
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
)
_MOST_DEATHS = 3
_PATIENCE = 600
"""Seconds after which a call is given up that nothing else gives up (`env.timeout` is much shorter)."""
_MULTIPLIER = 0x5DEECE66D
"""java.util.Random sets its state to its seed XOR this number."""
NO_MATCH = "No known action matches that input."

MISSING_PACKAGE = (
    "environment 'scienceworld' needs the package scienceworld, which is not installed: "
    "pip install 'turncredit[scienceworld]'"
)
MISSING_JAVA = (
    "environment 'scienceworld' needs Java 11 or newer, and there is no `java` on the PATH nor in $JAVA_HOME; install "
    "one, for example apt-get install openjdk-17-jre-headless"
)


class Died(Exception):
    """The Java process has ended, and with it all of its worlds."""


class Reply(NamedTuple):
    """What the simulator says after an action. A score is 0 to 1, or negative after a fatal mistake."""

    text: str
    score: float
    completed: bool


def java() -> str | None:
    """The program that starts Java; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    own = Path(home, "bin", "java") if home else None
    return str(own) if own and os.access(own, os.X_OK) else shutil.which("java")


def check_installed(_settings: Any = None) -> None:
    """Raise UserError, one line, where the package or Java is missing."""
    if find_spec("scienceworld") is None or find_spec("py4j") is None:
        raise UserError(MISSING_PACKAGE)
    if java() is None:
        raise UserError(MISSING_JAVA)


class Simulator:
    """A Java process with the simulator in it. Its calls must not overlap."""

    def __init__(self) -> None:
        """Start the process. Raises UserError where that is impossible."""
        check_installed()
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
        from scienceworld.constants import BASEPATH, JAR_PATH

        with tempfile.TemporaryFile("w+", encoding="utf-8") as stderr:
            try:
                port, token, self.process = launch_gateway(
                    classpath=JAR_PATH,
                    javaopts=list(_OPTIONS),
                    java_path=java(),
                    die_on_exit=True,
                    enable_auth=True,
                    return_proc=True,
                    redirect_stderr=stderr,
                    cwd=BASEPATH,
                )
            except (ValueError, OSError) as error:  # it ended before it named its port
                stderr.seek(0)
                reason = next((line for line in reversed(stderr.read().splitlines()) if line.strip()), str(error))
                raise UserError(f"environment 'scienceworld': Java does not start: {reason.strip()}") from error
        # Without the client's memory management, which would talk to this process's Java from a forked process, too.
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(
                port=port, auth_token=token, auto_field=True, read_timeout=_PATIENCE, enable_memory_management=False
            ),
            java_process=self.process,
        )
        self._current: World | None = None
        self._simplifications = ""
        self.call(self._prepare)

    def _prepare(self) -> None:
        jvm = self._gateway.jvm
        # The simulator prints a page about each step. Before any of its classes are loaded, which keep the stream:
        jvm.java.lang.System.setOut(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))

        def singleton(package: Any, name: str) -> Any:
            return getattr(getattr(package, f"{name}$"), "MODULE$")

        def private_field(class_name: str, field: str) -> Any:
            java_field = jvm.java.lang.Class.forName(class_name).getDeclaredField(field)
            java_field.setAccessible(True)
            return java_field

        self._random = singleton(jvm.scala.util, "Random").self()
        self._random_state = private_field("java.util.Random", "seed")
        self._ids = singleton(jvm.util, "UniqueIdentifier")
        self._next_id = private_field("util.UniqueIdentifier$", "count")
        self._processor = singleton(jvm.main.scala.scienceworld.runtime, "SimplifierProcessor")

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        with suppress(Exception):
            self._gateway.close()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError, AttributeError):
                pipe.close()  # type: ignore[union-attr]

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a function that asks the Java process.

        Raises Died where the process ends meanwhile, UserError where it does not answer, and Py4JJavaError for an
        exception of the simulator.
        """
        from py4j.protocol import Py4JError, Py4JJavaError

        try:
            return function(*arguments)
        except Py4JJavaError:
            raise
        except (Py4JError, OSError) as error:
            with suppress(Exception):
                self.process.wait(1)
            if self.alive:
                raise UserError(
                    f"environment 'scienceworld': the simulator does not answer ({type(error).__name__}); run again, "
                    "and report what the rollout did if it happens again"
                ) from error
            raise Died from error

    def world(self, task: str, variation: int, simplifications: str) -> World:
        """A fresh world. Raises Died, and UserError for an unknown task."""
        world = World(self, task, variation, simplifications)
        self.call(world.load)
        return world

    def variations(self, task: str) -> dict[str, list[int]]:
        """The variations of a task in each of the official splits."""

        def ask() -> dict[str, list[int]]:
            interface = self.interface()
            self._simplify("")  # loading does it, for all worlds; their own are set again when they are entered
            interface.load(task, 0, "", False)
            lists = {"train": "Train", "dev": "Dev", "test": "Test"}
            variations = {split: list(getattr(interface, f"getVariations{name}")()) for split, name in lists.items()}
            self.forget(interface)
            return variations

        return self.call(ask)

    def gold_path(self, task: str, variation: int, simplifications: str) -> list[str]:
        """The actions by which the simulator's own agent, which knows everything, completes a task."""

        def ask() -> list[str]:
            interface = self.interface()
            self._simplify(simplifications)
            interface.load(task, variation, simplifications, True)
            path = [str(action) for action in interface.getGoldActionSequence()]
            self.forget(interface)
            return path

        return self.call(ask)

    def interface(self) -> Any:
        """A new object of the simulator, with which a world can be made. Making it uses random numbers and ids."""
        self._leave()
        return self._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()

    def forget(self, interface: Any) -> None:
        """Let the Java process free such an object."""
        with suppress(Exception):
            self._gateway.detach(interface)

    def loading(self, world: World) -> None:
        """Make `world` the current one, about to be loaded.

        Some objects are made before the simulator reads the simplifications: it would make them with those of the load
        before. This gives what the package's usual `load` and then `reset` give.
        """
        self._leave()
        self._simplify(world.simplifications)
        self._current = world

    def enter(self, world: World) -> None:
        """Make `world` the current one: what all worlds share is as it was when `world` was left."""
        if self._current is world:
            return
        self._leave()
        if self._simplifications != world.simplifications:
            self._simplify(world.simplifications)
        random, next_id = world.shared
        self._random.setSeed(random ^ _MULTIPLIER)
        self._next_id.setLong(self._ids, next_id)
        self._current = world

    def _leave(self) -> None:
        if self._current is not None:
            self._current.shared = self._random_state.get(self._random), self._next_id.get(self._ids)
            self._current = None

    def close(self, world: World) -> None:
        """Free the world and its Java objects."""
        if self._current is world:
            self._current = None
        self.forget(world.interface)

    def _simplify(self, simplifications: str) -> None:
        self._processor.parseSimplificationStr(simplifications)
        self._simplifications = simplifications


class World:
    """One running task in a simulator."""

    def __init__(self, simulator: Simulator, task: str, variation: int, simplifications: str):
        self.simulator, self.task, self.variation = simulator, task, variation
        self.simplifications = simplifications
        self.interface = simulator.call(simulator.interface)
        self.shared = (0, 0)
        """The random numbers' state and the next object's id, while another world is the current one."""

    def load(self) -> None:
        """Start the task from its beginning."""
        self.simulator.loading(self)
        error = self.interface.load(self.task, self.variation, self.simplifications, False)
        if error:
            raise UserError(f"environment 'scienceworld': task '{self.task}', variation {self.variation}: {error}")

    def look(self) -> str:
        """The description of the room, which takes no time."""
        return self.simulator.call(self._look)

    def description(self) -> str:
        """The task in words."""
        return self.simulator.call(lambda: str(self.interface.getTaskDescription()))

    def step(self, action: str) -> Reply:
        """Carry out an action. Raises Died."""
        return self.simulator.call(self._step, action)

    def close(self) -> None:
        """Free the world and its Java objects."""
        self.simulator.close(self)

    def _look(self) -> str:
        self.simulator.enter(self)
        return re.sub(" +", " ", str(self.interface.freeActionLook()).strip())  # as the simulator does after a step

    def _step(self, action: str) -> Reply:
        from py4j.protocol import Py4JJavaError

        self.simulator.enter(self)
        try:
            text = str(self.interface.step(action))
        except Py4JJavaError:  # its parser failed, before anything was done
            text = NO_MATCH
        return Reply(text, float(self.interface.getScore()), bool(self.interface.getCompleted()))


_EXCEPTION = re.compile(r"(?:[a-z]\w*\.)+\w*(?:Exception|Error)\b|scala\.MatchError")


def broke(reply: Reply) -> bool:
    """Whether the simulator itself failed: it answers the next action with the name of its exception, and score -1."""
    return reply.score < 0 and bool(_EXCEPTION.match(reply.text))


#: by process: a forked one has none. Those of other processes stay referenced, because closing them is not ours.
_simulators: dict[int, Simulator] = {}


def simulator() -> Simulator:
    """This process's simulator, started if there is none or if it has died. Raises UserError."""
    running = _simulators.get(os.getpid())
    if running is None or not running.alive:
        if running is None:
            atexit.register(stop)
        else:
            running.stop()
        running = _simulators[os.getpid()] = Simulator()
    return running


def surviving(ask: Callable[[], T], about: str) -> T:
    """The result of a function that asks this process's simulator, again after a death of the Java process.

    `ask` takes the simulator anew each time (`simulator`), which starts one. Raises UserError, with what it is `about`,
    after three deaths in a row.
    """
    for _ in range(_MOST_DEATHS):
        with suppress(Died):
            return ask()
    raise UserError(
        f"environment 'scienceworld': the Java process died {_MOST_DEATHS} times in a row ({about}); it has {HEAP_MB} "
        "MB for all rollouts that are played at a time: lower rollout.slots, or free memory"
    )


def stop() -> None:
    """End this process's simulator, if there is one."""
    running = _simulators.pop(os.getpid(), None)
    if running is not None:
        running.stop()
