"""A Slurm of one node or several for tests: real daemons, run by whoever runs the tests. GPUs are only files.

No munge, no accounting database. All files are in its folder; only `/etc/slurm/slurm.conf` is a link to there while it
runs, because jobs look for their Slurm at that place (Snakemake's plug-in takes SLURM_ variables from them).
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.pipeline.processes import alive

CPUS, GPUS = 4, 4
DAEMONS = ("slurmctld", "slurmd")
#: where Debian's Slurm is configured
INSTALLED = Path("/etc/slurm/slurm.conf")
#: beside the settings: the process whose tests use this cluster
OWNER = "owner.pid"
SETTINGS = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
ReturnToService=2
MinJobAge=7200
SlurmdParameters=config_overrides
KillWait=3
GresTypes=gpu
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=ALL MaxTime=INFINITE State=UP
PartitionName=requeued Nodes=ALL MaxTime=INFINITE State=UP PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=100
"""
NODE = """\
NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} Boards=1 SocketsPerBoard=1 \
CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory=100000 Gres=gpu:a100:{gpus} State=UNKNOWN
"""


class Cluster:
    """A running Slurm. `environment` is what its clients need."""

    def __init__(self, folder: Path, nodes: int):
        self.folder = folder
        self.host = socket.gethostname().split(".")[0]
        self.nodes = [self.host] if nodes == 1 else [f"{self.host}-{number}" for number in range(nodes)]
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen] = {}

    def ask(self, *command: str) -> str:
        """What a Slurm command prints."""
        made = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=60, check=True
        )
        return made.stdout

    def start(self, name: str, *arguments: str) -> None:
        """Start a daemon: `slurmctld`, or `slurmd.NODE` with the arguments that name the node."""
        program = name.partition(".")[0]
        with (self.folder / f"{name}.log").open("a") as log:
            self._daemons[name] = subprocess.Popen(
                [shutil.which(program) or program, "-D", *arguments],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self, *names: str) -> None:
        """Stop these daemons; all without names, the nodes' first."""
        stopped = [self._daemons.pop(name) for name in names or reversed(list(self._daemons))]
        for daemon in stopped:
            daemon.terminate()
        for daemon in stopped:
            daemon.wait(timeout=30)

    def jobs(self) -> dict[str, str]:
        """State by id of the jobs that are queued or running."""
        lines = self.ask("squeue", "--noheader", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines)


def _left_over() -> bool:
    """Whether the Slurm here is one of tests that were killed: its daemons live on, its link is there."""
    owner = INSTALLED.resolve().with_name(OWNER)
    return INSTALLED.is_symlink() and owner.exists() and not alive(int(owner.read_text()))


def _end_left_over() -> None:
    for number in INSTALLED.resolve().parent.glob("slurm*.pid"):
        with suppress(OSError, ValueError):
            os.kill(int(number.read_text()), signal.SIGTERM)


def missing() -> str:
    """Why there can be no cluster here; "" if there can."""
    if INSTALLED.exists() and not _left_over():
        return f"this machine has a Slurm of its own ({INSTALLED})"
    if os.geteuid() != 0:
        return f"needs root, for the link {INSTALLED}"
    absent = [name for name in (*DAEMONS, "sbatch", "squeue", "scancel") if shutil.which(name) is None]
    return f"needs Slurm ({', '.join(absent)} missing): make test-slurm installs Debian's" if absent else ""


@contextmanager
def cluster(folder: Path, nodes: int = 1) -> Iterator[Cluster]:
    """A Slurm of so many nodes, all on this machine, whose files are in `folder`."""
    made = Cluster(folder, nodes)
    for name in ("state", *(f"spool.{node}" for node in made.nodes)):
        (folder / name).mkdir()
    devices = [folder / f"gpu{number}" for number in range(GPUS)]
    for device in devices:
        device.touch()
    ports = _free_ports(1 + nodes)
    values = {
        "folder": folder,
        "host": made.host,
        "user": getpass.getuser(),
        "cpus": CPUS,
        "gpus": GPUS,
        "ports": ports,
    }
    each = [NODE.format(**values, name=name, port=port) for name, port in zip(made.nodes, ports[1:], strict=True)]
    settings = SETTINGS.format(**values)
    before, partitions = settings[: settings.index("PartitionName")], settings[settings.index("PartitionName") :]
    (folder / "slurm.conf").write_text("".join([before, *each, partitions]))
    (folder / OWNER).write_text(str(os.getpid()))
    gpus = f"AutoDetect=off\nNodeName={','.join(made.nodes)} Name=gpu Type=a100 File={folder}/gpu[0-{GPUS - 1}]\n"
    (folder / "gres.conf").write_text(gpus)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    INSTALLED.parent.mkdir(exist_ok=True)
    if _left_over():
        _end_left_over()
    INSTALLED.unlink(missing_ok=True)  # one of tests that were killed
    INSTALLED.symlink_to(folder / "slurm.conf")
    try:
        made.start("slurmctld")
        for name in made.nodes:
            made.start(f"slurmd.{name}", "-N", name)
        _wait_until_idle(made)
        yield made
    finally:
        INSTALLED.unlink()
        made.stop()


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def _wait_until_idle(made: Cluster, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if set(made.ask("sinfo", "--noheader", "--format=%T").split()) == {"idle"}:
                return
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            pass
        time.sleep(0.5)
    logs = "\n".join(log.read_text()[-2000:] for log in made.folder.glob("slurm*.log"))
    raise RuntimeError(f"Slurm did not start within {seconds:g} s:\n{logs}")
