"""No garbage collection while jobs are planned: tens of thousands of objects are made, and none of them can go."""

import atexit
import gc

# `stop_planning` turns it on again before the first job. The interpreter, too, collects garbage when it ends.
gc.disable()
atexit.register(gc.freeze)


def stop_planning():
    """Collect garbage again, but not among the jobs, which all stay."""
    gc.freeze()
    gc.enable()
