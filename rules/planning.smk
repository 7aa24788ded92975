"""What of the price of planning tens of thousands of jobs can be saved without changing the plan.

Snakemake works out the same facts for each job again. These two are the dearest (benchmarks/pipeline/PLAN.md): together a
quarter of a large experiment's dry run.
"""

import gc
import inspect

from snakemake.common import overwrite_function_params
from snakemake.dag import ScriptProcessor
from snakemake.resources import Resource

# Tens of thousands of jobs are hundreds of objects each, none of which can go: looking for garbage among them less often
# takes a tenth off a large experiment's dry run.
gc.set_threshold(100_000, 50, 100)


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
