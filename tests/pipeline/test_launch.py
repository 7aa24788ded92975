"""The warm launcher: a job cannot tell that it was forked, and nothing outlives what it belongs to."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.processes import alive, processes_with, wait_for
from turncredit.pipeline import launch

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the warm launcher needs Linux")

ENV = {**os.environ, **launch.ONE_THREAD}
WARM = "import sys; print('warm' if 'turncredit.pipeline.job_script' in sys.modules else 'plain')"


@contextlib.contextmanager
def started(*modules: str) -> Iterator[str]:
    """The launcher's shell, with a server that imports little besides `modules`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "MODULES", ("turncredit.pipeline.job_script", *modules))
        # Libraries that other tests imported may have changed the environment (KMP_INIT_AT_FORK) since ENV was taken.
        for name in [name for name in os.environ if name not in ENV]:
            patch.delenv(name)
        for name, value in ENV.items():
            patch.setenv(name, value)
        path, reason = launch.start()
    assert path, reason
    yield path
    for pid in processes_with(str(Path(path).parent)):
        with contextlib.suppress(ProcessLookupError):  # ended meanwhile
            os.kill(pid, signal.SIGTERM)


@pytest.fixture(scope="module")
def shell():
    """The launcher's shell, with a server that imports little."""
    with started() as path:
        yield path


def write(folder: Path, code: str, name: str = "tmpabcd.job.py") -> Path:
    script = folder / name
    script.write_text(textwrap.dedent(code))
    return script


def command(script: Path) -> str:
    return f"{sys.executable} {script}"


def ordinary_signals() -> None:
    """As in a terminal. Whoever runs the tests (a background job, nohup) may have these ignored, for all to inherit."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def run(shell: str | None, line: str, **options) -> subprocess.CompletedProcess[str]:
    options = {"env": ENV, "executable": shell or "/bin/bash", "timeout": 60, **options}
    options["preexec_fn"] = ordinary_signals
    return subprocess.run(line, check=False, shell=True, capture_output=True, text=True, **options)


def begin(shell: str, script: Path, **options) -> subprocess.Popen:
    options["preexec_fn"] = ordinary_signals
    return subprocess.Popen(command(script), shell=True, executable=shell, env=ENV, **options)


def pid_in(path: Path) -> int:
    assert wait_for(lambda: path.exists() and path.read_text(encoding="utf-8").strip())
    return int(path.read_text(encoding="utf-8"))


def test_a_job_of_this_interpreter_is_forked_and_anything_else_is_not(shell, tmp_path):
    script = write(tmp_path, WARM)
    assert run(shell, command(script)).stdout == "warm\n"
    assert run(shell, f"{sys.executable} -B {script}").stdout == "plain\n"
    assert run(shell, f"echo first; {command(script)}").stdout == "first\nplain\n"


def test_a_job_of_several_threads_is_forked_and_its_torch_has_them(tmp_path):
    script = write(tmp_path, f"{WARM}\nimport os, torch\nprint(torch.get_num_threads(), os.environ['OMP_NUM_THREADS'])")
    with started("torch") as shell:
        for threads in "1", "2":
            asked = dict.fromkeys(launch.ONE_THREAD, threads)
            assert run(shell, command(script), env={**ENV, **asked}).stdout == f"warm\n{threads} {threads}\n"


def test_a_job_is_forked_from_a_server_that_has_imported_all_that_it_imports_in_a_run(tmp_path):
    needed = "import torch, pyarrow, turncredit.training.update"
    script = write(tmp_path, f"import sys\nhad = set(sys.modules)\n{needed}\nprint(sorted(set(sys.modules) - had))")
    with started(*launch.MODULES) as shell:
        assert run(shell, command(script), timeout=300).stdout == "[]\n"


def test_a_job_with_another_python_path_or_other_devices_is_a_plain_process(shell, tmp_path):
    script = write(tmp_path, WARM)
    for name, value in (("PYTHONPATH", str(tmp_path)), ("CUDA_VISIBLE_DEVICES", "1")):
        assert run(shell, command(script), env={**ENV, name: value}).stdout == "plain\n", name


def test_what_a_job_sees_is_what_a_plain_process_sees(shell, tmp_path):
    script = write(
        tmp_path,
        """
        import os, signal, sys
        print(os.getcwd(), sys.argv, sys.path[0], __name__, __file__, oct(os.umask(0)))
        print(sorted(item for item in os.environ.items() if item[0] not in ("_", "SHLVL")))  # the shell's own
        print([signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)])
        print(sys.stdin.read())
        print("to stderr", file=sys.stderr)
        os.write(1, b"raw\\n")
        """,
    )
    folder = tmp_path / "a folder"
    folder.mkdir()
    options = {"cwd": folder, "input": "typed", "umask": 0o27, "env": {**ENV, "MINE": "é\udcff"}}
    warm, plain = run(shell, command(script), **options), run(None, command(script), **options)

    assert "MINE" in warm.stdout
    assert warm.stdout == plain.stdout
    assert warm.stderr == plain.stderr == "to stderr\n"
    assert warm.stdout.endswith("typed\nraw\n")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("", 0),
        ("raise SystemExit", 0),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit('no such thing')", 1),
        ("1 / 0", 1),
        ("def", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
    ],
)
def test_a_job_ends_as_a_plain_process_would(shell, tmp_path, code, status):
    script = write(tmp_path, code)
    warm, plain = run(shell, command(script)), run(None, f"exec {command(script)}")
    assert warm.returncode == plain.returncode == status
    assert warm.stderr == plain.stderr


def test_nothing_is_carried_from_one_job_to_the_next(shell, tmp_path):
    script = write(
        tmp_path,
        """
        import os, json, turncredit.errors as module
        print(hasattr(module, "left_behind"), os.environ.get("LEFT"), "mailbox" in __import__("sys").modules)
        module.left_behind = os.environ["LEFT"] = "x"
        import mailbox
        """,
    )
    assert {run(shell, command(script)).stdout for _ in range(3)} == {"False None False\n"}


def test_a_jobs_own_exit_work_is_done(shell, tmp_path):
    script = write(
        tmp_path,
        """
        import atexit, tempfile, threading, time
        folder = tempfile.TemporaryDirectory()
        print(folder.name)
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
        atexit.register(print, "exit")
        """,
    )
    folder, *rest = run(shell, command(script)).stdout.split()
    assert rest == ["thread", "exit"]
    assert not Path(folder).exists()


def test_jobs_run_side_by_side_and_keep_their_output_apart(shell, tmp_path):
    script = write(tmp_path, "import os, time; print(os.environ['N']); time.sleep(0.5); print(os.environ['N'])")
    started = time.monotonic()
    jobs = [
        subprocess.Popen(
            command(script), shell=True, executable=shell, env={**ENV, "N": str(n)}, stdout=subprocess.PIPE, text=True
        )
        for n in range(6)
    ]
    assert [job.communicate(timeout=60)[0] for job in jobs] == [f"{n}\n{n}\n" for n in range(6)]
    assert time.monotonic() - started < 2.5


def test_a_killed_job_takes_its_children_with_it(shell, tmp_path):
    script = write(
        tmp_path,
        f"""
        import os, subprocess, time
        child = subprocess.Popen(["sleep", "600"])
        open(r"{tmp_path}/child", "w").write(str(child.pid))
        open(r"{tmp_path}/job", "w").write(str(os.getpid()))
        time.sleep(600)
        """,
    )
    client = begin(shell, script)
    job, child = pid_in(tmp_path / "job"), pid_in(tmp_path / "child")
    client.kill()
    assert wait_for(lambda: not alive(job) and not alive(child))
    client.wait(timeout=20)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_job_is_the_jobs_to_answer(shell, tmp_path, number):
    script = write(
        tmp_path,
        f"""
        import os, signal, sys, time
        signal.signal({int(number)}, lambda *_: sys.exit(7))
        open(r"{tmp_path}/job", "w").write(str(os.getpid()))
        time.sleep(600)
        """,
    )
    client = begin(shell, script)
    pid_in(tmp_path / "job")
    client.send_signal(number)
    assert client.wait(timeout=20) == 7


def test_a_job_that_comes_before_the_server_is_ready_waits_for_it(tmp_path):
    (tmp_path / "turncredit_slow.py").write_text("import time\ntime.sleep(2)\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENV, "PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
        with started("turncredit_slow") as shell:
            assert run(shell, command(write(tmp_path, WARM))).stdout == "warm\n"


def test_what_a_job_leaves_running_is_ended_with_it(shell, tmp_path):
    script = write(
        tmp_path,
        f"""
        import subprocess
        child = subprocess.Popen(["setsid", "sleep", "600"])
        open(r"{tmp_path}/child", "w").write(str(child.pid))
        """,
    )
    assert run(shell, command(script), stdin=subprocess.DEVNULL).returncode == 0
    assert not alive(pid_in(tmp_path / "child"))


def test_a_job_that_a_signal_ends_is_seen_to_end_so(shell, tmp_path):
    script = write(tmp_path, f"import os, time; open(r'{tmp_path}/job', 'w').write(str(os.getpid())); time.sleep(600)")
    client = begin(shell, script)
    pid_in(tmp_path / "job")
    client.terminate()
    assert client.wait(timeout=20) == -signal.SIGTERM


PARENT = """
import os, subprocess, sys, time
from turncredit.pipeline import launch
launch.MODULES = {modules}
shell, reason = launch.start()
env = {{**os.environ, **launch.ONE_THREAD}}
job = subprocess.Popen(f"{{sys.executable}} {script}", shell=True, executable=shell, env=env)
print(shell, flush=True)
time.sleep(600)
"""


def test_killing_the_parent_leaves_no_process_and_no_folder(tmp_path):
    script = write(
        tmp_path,
        f"""
        import os, subprocess, time
        child = subprocess.Popen(["setsid", "sleep", "600"])
        open(r"{tmp_path}/child", "w").write(str(child.pid))
        open(r"{tmp_path}/job", "w").write(str(os.getpid()))
        time.sleep(600)
        """,
    )
    parent = parent_of(script, ("turncredit.pipeline.job_script",), tmp_path)
    folder = Path(parent.stdout.readline().strip()).parent
    job, child = pid_in(tmp_path / "job"), pid_in(tmp_path / "child")
    assert alive(job)
    assert alive(child)
    kill_parent(parent, folder)
    assert not alive(job)
    assert wait_for(lambda: not alive(child))


def test_killing_the_parent_while_the_server_imports_leaves_no_process_and_no_folder(tmp_path):
    swallows = "try:\n    time.sleep(600)\nexcept BaseException:\n    time.sleep(600)\n"  # as some libraries do
    (tmp_path / "turncredit_slow.py").write_text(f"import time\nopen('begun', 'w').write('1')\n{swallows}")
    parent = parent_of(write(tmp_path, WARM), ("turncredit_slow",), tmp_path)
    folder = Path(parent.stdout.readline().strip()).parent
    pid_in(tmp_path / "begun")
    kill_parent(parent, folder)


def parent_of(script: Path, modules: tuple[str, ...], folder: Path) -> subprocess.Popen[str]:
    """A process that has started the launcher and one job."""
    code = PARENT.format(modules=modules, script=script)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code], cwd=folder, **streams)


def kill_parent(parent: subprocess.Popen[str], folder: Path) -> None:
    """Kill it outright; all that belongs to it must end, without a word."""
    assert processes_with(str(folder))
    parent.kill()
    parent.wait(timeout=20)
    assert wait_for(lambda: not processes_with(str(folder)))
    assert wait_for(lambda: not folder.exists())
    assert parent.stderr.read() == ""


def test_a_killed_server_ends_its_jobs_and_later_ones_are_plain_processes(tmp_path):
    script = write(tmp_path, f"import os, time; open(r'{tmp_path}/job', 'w').write(str(os.getpid())); time.sleep(600)")
    with started() as path:
        client = begin(path, script, stderr=subprocess.PIPE, text=True)
        job = pid_in(tmp_path / "job")
        leaders = [pid for pid in processes_with(str(Path(path).parent)) if os.getsid(pid) == pid]
        (server,) = set(leaders) - {job}
        os.kill(server, signal.SIGKILL)
        assert client.wait(timeout=20) == 1
        assert "The warm launcher ended while it ran this job" in client.stderr.read()
        assert wait_for(lambda: not alive(job))
        assert run(path, command(write(tmp_path, WARM))).stdout == "plain\n"
    shutil.rmtree(Path(path).parent)  # killed, the server could not do it itself


def test_where_it_cannot_work_it_says_why(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.delattr(os, "pidfd_open")  # as on other systems, and in a kernel from before 2019
        assert launch.start() == (None, "the warm launcher needs Linux 5.3 or later")
    monkeypatch.setattr(launch.tempfile, "mkdtemp", lambda **_: str(tmp_path))
    monkeypatch.setattr(launch.sys, "executable", "/no/such/python")
    path, reason = launch.start()
    assert path is None
    assert "cannot run programs" in reason


def test_where_the_path_of_its_socket_is_too_long_jobs_are_plain_processes(monkeypatch, tmp_path):
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    monkeypatch.setattr(launch.tempfile, "tempdir", str(folder))
    path, reason = launch.start()
    assert path is None
    assert reason.endswith("(AF_UNIX path too long); set TMPDIR to a shorter path")
    assert not list(folder.iterdir())
