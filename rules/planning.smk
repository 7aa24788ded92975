"""Makes planning tens of thousands of jobs faster, without changing the plan.

Snakemake recomputes the same facts for each job, and Python's garbage collector scans objects that all stay alive.
Together this is 40% of a large experiment's dry run (benchmarks/pipeline/PLAN.md).
"""

import atexit
import gc
import inspect

from snakemake.common import overwrite_function_params
from snakemake.dag import ScriptProcessor
from snakemake.resources import Resource

# `stop_planning` turns it on again before the first job. The interpreter also collects garbage when it ends.
gc.disable()
atexit.register(gc.freeze)


def stop_planning():
    """Turn garbage collection on again, except for the jobs, which all stay alive."""
    gc.freeze()
    gc.enable()


def cached_parameters(function):
    """`function`, with its parameters cached: Snakemake otherwise inspects it several times for each job."""
    overwrite_function_params(function, inspect.signature(function).parameters)
    return function


cached_parameters(Resource.evaluate)

# Snakemake opens each job's script to check that it exists. Many jobs share one script, so the first check is enough.
look_for_script = ScriptProcessor.process_job
EXISTING_SCRIPTS = set()


def look_once(processor, job):
    """`ScriptProcessor.process_job` for the first job of each script, and for jobs without a script."""
    if not job.is_script or job.rule.script not in EXISTING_SCRIPTS:
        look_for_script(processor, job)
        EXISTING_SCRIPTS.add(job.rule.script)


ScriptProcessor.process_job = look_once
