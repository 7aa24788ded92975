"""What the jobs of an experiment take, estimated from the model's shapes: memory, disk, time on a GPU.

Rules ask for the memory, GPUs and time that are computed here, unless the configuration's `resources` say otherwise;
`turncredit plan` prints them. These are estimates, not measurements; `assumed` has the numbers behind them. Nothing
here reads weights or imports torch.
"""

from turncredit.pipeline.resources.assumed import ASSUMED
from turncredit.pipeline.resources.gpu_time import gpu_seconds, gpu_seconds_in_turn
from turncredit.pipeline.resources.memory import Need, need
from turncredit.pipeline.resources.requests import (
    asleep_mb,
    disk,
    fits,
    gpus_requested,
    in_time,
    less_memory,
    ordered,
    requested,
    resource,
)

__all__ = ["ASSUMED", "Need", "asleep_mb", "disk", "fits", "gpu_seconds", "gpu_seconds_in_turn", "gpus_requested"]
__all__ += ["in_time", "less_memory", "need", "ordered", "requested", "resource"]
