"""What of the price of planning tens of thousands of jobs can be saved without changing the plan.

Snakemake works out the same facts for each job again, and Python looks for garbage among objects none of which can go.
Together that is four tenths of a large experiment's dry run (benchmarks/pipeline/PLAN.md).
"""

import atexit
import gc
import inspect

from snakemake.common import overwrite_function_params
from snakemake.dag import ScriptProcessor
from snakemake.resources import Resource

# `stop_planning` turns it on again before the first job. The interpreter, too, looks for garbage when it ends.
gc.disable()
atexit.register(gc.freeze)


def stop_planning():
    """Look for garbage again, but not among the jobs, which all stay."""
    gc.freeze()
    gc.enable()


def known(function):
    """`function`, with its parameters kept beside it: Snakemake otherwise inspects it several times for each job."""
    overwrite_function_params(function, inspect.signature(function).parameters)
    return function


known(Resource.evaluate)

# Snakemake opens each job's script to see whether it is there. Here a rule's jobs all have the same one: once is enough.
look_for_script = ScriptProcessor.process_job
SCRIPTS_THERE = set()


def look_once(processor, job):
    """`ScriptProcessor.process_job` for the first job of each script, and for whatever is no script."""
    if not job.is_script or job.rule.script not in SCRIPTS_THERE:
        look_for_script(processor, job)
        SCRIPTS_THERE.add(job.rule.script)


ScriptProcessor.process_job = look_once
