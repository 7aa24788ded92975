"""What this node's CUDA driver says, asked by a process of its own.

    python -IS turncredit/policy/cuda_driver.py        # prints the version of CUDA that the driver is for, as 13000
    python -IS turncredit/policy/cuda_driver.py 2      # prints the free share of the fullest of the first two GPUs

A process that has called the driver could no longer fork one that uses a GPU. NVML, which torch asks in its place,
counts GPUs also where the driver is too old for this CUDA, or does not start.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys

#: Seconds that a driver without its persistence daemon may take to start several GPUs.
STARTS_WITHIN = 120.0


def fault(built_for: str) -> str:
    """What keeps a program built for this CUDA ("13.0") from using this node's driver; "" if nothing does.

    Within a major version newer programs run on older drivers (NVIDIA's minor version compatibility).
    """
    try:
        asked = _asked()
    except subprocess.TimeoutExpired:
        return f"CUDA has not started within {STARTS_WITHIN:.0f} s"
    if asked.returncode:
        said = asked.stderr.strip().splitlines() or [f"status {asked.returncode}"]
        return f"CUDA does not start ({said[-1]})"
    version = int(asked.stdout.split()[-1])
    if version // 1000 < int(built_for.partition(".")[0]):
        return f"its driver is for CUDA {version // 1000}.{version % 1000 // 10}, too old for a build for {built_for}"
    return ""


def free_share(gpus: int) -> float:
    """The free share of the memory of the fullest of the first `gpus` GPUs; 1 where the driver does not say it.

    The process that asks has a CUDA context while it does, as vLLM has where it compares free memory and all of it.
    """
    try:
        asked = _asked(str(gpus))
        asked.check_returncode()
        return float(asked.stdout.split()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError):
        return 1.0  # vLLM says what is wrong


def _asked(*gpus: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-IS", __file__, *gpus]
    return subprocess.run(command, capture_output=True, text=True, timeout=STARTS_WITHIN, check=False)


class _Driver:
    """The driver, started."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the driver; ends the process where it returns an error."""
        if error := getattr(self._library, name)(*arguments):
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(error, ctypes.byref(text))
            sys.exit(f"{name}: error {error}{f', {text.value.decode()}' if text.value else ''}")

    def version(self) -> int:
        """The newest CUDA that it is for, 1000 times the major and 10 times the minor version."""
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        return version.value

    def free_share(self, gpus: int) -> float:
        """The smallest free share of the memory of the first GPUs."""
        shares = []
        for number in range(gpus):
            gpu, context, free, total = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
            self.call("cuDeviceGet", ctypes.byref(gpu), number)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), gpu)
            self.call("cuCtxSetCurrent", context)
            self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            shares.append(free.value / total.value)
        return min(shares)


if __name__ == "__main__":
    print(_Driver().free_share(int(sys.argv[1])) if len(sys.argv) > 1 else _Driver().version())
