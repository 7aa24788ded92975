"""How much of its GPUs' memory a job can have, asked of their driver by a process of its own.

    python -IS turncredit/policy/engines/free_memory.py GPUS      # prints the free share of the fullest of them

The process that asks has a CUDA context while it does, as vLLM has where it compares the same two numbers; this process
must not have one, or it could no longer fork processes that use a GPU.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys

#: Seconds in which the driver answers, or nothing is known.
ANSWERS_WITHIN = 120.0


def free_share(gpus: int) -> float:
    """The free share of the memory of the fullest of the first `gpus` GPUs; 1 where the driver does not say it."""
    command = [sys.executable, "-IS", __file__, str(gpus)]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=ANSWERS_WITHIN, check=True).stdout
        return float(said.split()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError):
        return 1.0  # vLLM says what is wrong


def _free_share(gpus: int) -> float:
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        if error := getattr(driver, name)(*arguments):
            sys.exit(f"{name}: error {error}")

    call("cuInit", 0)
    shares = []
    for number in range(gpus):
        gpu, context, free, total = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        call("cuDeviceGet", ctypes.byref(gpu), number)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), gpu)
        call("cuCtxSetCurrent", context)
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        shares.append(free.value / total.value)
    return min(shares)


if __name__ == "__main__":
    print(_free_share(int(sys.argv[1])))
