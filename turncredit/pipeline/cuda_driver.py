"""Whether CUDA starts on this node, asked of its driver by a process of its own.

    python -IS turncredit/pipeline/cuda_driver.py      # prints the version of CUDA that the driver is for, as 13000

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
    command = [sys.executable, "-IS", __file__]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=STARTS_WITHIN, check=False)
    except subprocess.TimeoutExpired:
        return f"CUDA has not started within {STARTS_WITHIN:.0f} s"
    if asked.returncode:
        said = asked.stderr.strip().splitlines() or [f"status {asked.returncode}"]
        return f"CUDA does not start ({said[-1]})"
    version = int(asked.stdout.split()[-1])
    if version // 1000 < int(built_for.partition(".")[0]):
        return f"its driver is for CUDA {version // 1000}.{version % 1000 // 10}, too old for a build for {built_for}"
    return ""


def _version() -> int:
    """Start the driver; returns the newest CUDA that it is for, 1000 times the major and 10 times the minor version."""
    driver = ctypes.CDLL("libcuda.so.1")
    error = driver.cuInit(0)
    if error:
        sys.exit(f"cuInit: error {error}{_in_words(driver, error)}")
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    return version.value


def _in_words(driver: ctypes.CDLL, error: int) -> str:
    text = ctypes.c_char_p()
    driver.cuGetErrorString(error, ctypes.byref(text))
    return f", {text.value.decode()}" if text.value else ""


if __name__ == "__main__":
    print(_version())
