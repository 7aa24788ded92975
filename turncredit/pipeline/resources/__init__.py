"""What the jobs of an experiment take, estimated from the model's shapes: memory, disk, time on a GPU.

Rules ask for the memory, GPUs and time that are computed here, unless the configuration's `resources` say otherwise;
`turncredit plan` prints them. These are estimates, not measurements; `assumed` states what they assume. Nothing here
reads weights or imports torch.

    assumed     the numbers behind the estimates, with their units and sources
    lengths     turns of a rollout and tokens of a context
    trained     sizes of a trained policy
    memory      what a job takes where its policy is, and in main memory
    requests    what a job asks for
    on_disk     the results' size
    gpu_time    seconds on a GPU
    advice      what to do about a job that does not fit
"""

from turncredit.pipeline.resources.advice import fits, in_time
from turncredit.pipeline.resources.assumed import ASSUMED
from turncredit.pipeline.resources.gpu_time import gpu_seconds, gpu_seconds_in_turn
from turncredit.pipeline.resources.memory import Need, need
from turncredit.pipeline.resources.on_disk import disk
from turncredit.pipeline.resources.requests import asleep_mb, ordered, requested, resource

__all__ = [
    "ASSUMED",
    "Need",
    "asleep_mb",
    "disk",
    "fits",
    "gpu_seconds",
    "gpu_seconds_in_turn",
    "in_time",
    "need",
    "ordered",
    "requested",
    "resource",
]
