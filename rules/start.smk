"""Before the first job: the lock, checks of what the jobs need, jobs that an earlier run left in Slurm, the launcher."""

import os
import sys
import time
from pathlib import Path

from snakemake.jobs import Job

from turncredit.errors import UserError
from turncredit.pipeline import (
    changed_settings,
    failures,
    internals,
    launch,
    loop,
    locks,
    preflight,
    lost_jobs,
    retries,
    slurm,
    submission,
    live_progress as watch,
)
from turncredit.pipeline.partitions import Asked, gpus_asked, largest_memory, listed

if workflow.is_main_process:
    # A killed run leaves Snakemake's lock behind; the next run takes it over if no other process is running.
    locks.take_over(
        Path(".snakemake"), str(PLAN.layout.root), unlocking="--unlock" in sys.argv
    )
    watch.tell_plan(
        results=os.path.abspath(PLAN.layout.root),
        runs=len(EXPERIMENT.runs()),
        in_rounds=lambda: blocks.stages_of_a_job(PLAN),
    )

    # Jobs on this machine all use its first GPU, so those that ask for one run one at a time. A job that asks for several
    # takes the limit as a whole. On a cluster, where Snakemake counts nodes, GPUs are Slurm's to give.
    if (
        workflow.resource_settings.nodes is None
        and "gpu" not in workflow.global_resources
    ):
        workflow.global_resources["gpu"] = 1


def deployed():
    """What makes an environment for each job: `--sdm conda` or `apptainer`, a cloud's image; "" if nothing does."""
    methods = map(str, workflow.deployment_settings.deployment_method)
    shared = map(str, workflow.storage_settings.shared_fs_usage)
    return next(iter(methods), "" if "software-deployment" in shared else "image")


def before_the_first_job():
    """Refuse, in one line, jobs that cannot work, and cancel those that an earlier run has left in Slurm."""
    jobs = list(workflow.dag.needrun_jobs())
    kind = "slurm" if run_id() else "local" if workflow.local_exec else "other"
    asked = [
        tuple(values_of(jobs, f"slurm_{name}")) for name in ("partition", "account")
    ]
    where = preflight.Where(
        deployed(),
        kind,
        *asked,
        STORED,
        asked=asked_by_rules(jobs),
        gpu_limit=getattr(workflow.global_resources.get("gpu"), "value", None),
    )
    try:
        require_names_of_executor()
        for line in preflight.refuse(PLAN, stages_of(jobs), where):
            print(f"turncredit: warning: {line}", file=sys.stderr)
        tell_of_changed_script(jobs)
        tell_of_changed_settings(jobs)
        line = slurm.cancel_leftovers(Path(".snakemake"), str(PLAN.layout.root))
        if line:
            print(f"turncredit: {line}", file=sys.stderr)
        if run_id():
            slurm.remember(
                Path(".snakemake"), str(PLAN.layout.root), run_id(), process=os.getpid()
            )
            slurm.poll_every(
                executor(),
                workflow.remote_execution_settings.seconds_between_status_checks,
            )
            slurm.without_job_step(executor())
            failures.record_what_slurm_says(
                executor(), str(PLAN.layout.root), since=BEGAN
            )
            LOST.append(lost_jobs.LostJobs(executor(), Path(".snakemake")))
            submission.Submission(executor())
            LARGEST_MEMORY.update(largest_memory(where.asked, listed()))
        # Snakemake asks a job how often it may be tried again; there is no public way to answer for one job.
        internals.replace(Job, "restart_times", property(restart_times))
    except UserError as error:
        print(f"turncredit: {error}", file=sys.stderr)
        sys.exit(2)


def require_names_of_executor():
    """Raise UserError in a version in which `executor` or `run_id` would find nothing, and Slurm count as another cluster."""
    internals.require(workflow, "scheduler")
    internals.require(workflow.scheduler, "_executor")
    if type(executor()).__module__ == "snakemake_executor_plugin_slurm":
        internals.require(executor(), "run_uuid")


def tell_of_changed_script(jobs):
    """Say how results of another version, whose script was another one, are kept."""
    changed = sum(workflow.dag.reason(job).code_changed for job in jobs)
    if changed:
        print(
            f"turncredit: {changed} jobs run again because the workflow's script has changed since their results were "
            f"made. To keep these, stop, and add --rerun-triggers mtime; `turncredit check {PLAN.layout.root}` says "
            "whether they hold",
            file=sys.stderr,
        )


def tell_of_changed_settings(jobs):
    """Say which settings have changed since the last run where finished results are made again."""
    changed = changed_settings.changed_settings(PLAN)
    # A look at every output of a large sweep takes long on a network file system.
    if not changed:
        return
    again = [
        job
        for job in jobs
        if job.rule.script and job.rule.name not in ("config", "report", "track")
        if all(os.path.exists(path) for path in job.output)
    ]
    if any(workflow.dag.reason(job).params_changed for job in again):
        print(
            f"turncredit: settings have changed since the last run ({changed_settings.in_words(changed)}). "
            f"Jobs that replace their results: {len(again)}. To keep these, stop and choose another name: "
            "--config experiment=NAME",
            file=sys.stderr,
        )


def stages_of(jobs):
    """The stages that these jobs run."""
    names = {retries.stage_of(job.rule.name) for job in jobs if job.rule.script}
    in_rounds = {
        stage
        for method in (EXPERIMENT.trained() if "rounds" in names else ())
        for stage, _ in loop.run(PLAN, method, EXPERIMENT.seeds[0])
    }
    return names | in_rounds


def values_of(jobs, resource):
    """The values of a resource that these jobs name, each once."""
    named = (job.resources.get(resource) for job in jobs if not job.is_local)
    return dict.fromkeys(str(value) for value in named if value)


def asked_by_rules(jobs):
    """What the jobs of each rule ask for; none where Slurm's plugin chooses their partitions."""
    if getattr(workflow.executor_settings, "partition_config", None) or os.environ.get(
        "SNAKEMAKE_SLURM_PARTITIONS"
    ):
        return ()
    here = workflow.local_exec  # then every job counts as local
    return tuple(
        dict.fromkeys(asked_by(job) for job in jobs if here or not job.is_local)
    )


def asked_by(job):
    """What a job asks for, where the plugin passes it on as it is."""
    given = job.resources.get
    cores = given("cpus_per_task") or job.threads
    memory = given("mem_mb") if not given("mem_mb_per_cpu") else 0
    numbers = [gpus_asked(job.resources), given("runtime"), memory, cores]
    known = [number if isinstance(number, int) else 0 for number in numbers]
    return Asked(job.rule.name, str(given("slurm_partition") or ""), *known)


#: With Slurm, what ends the wait for lost jobs, once jobs are submitted.
LOST = []
#: Start time. Snakemake restarts attempt counts on every run.
BEGAN = time.time()


def restart_times(job):
    """How often Snakemake tries a job again: depends on how its last attempt ended."""
    preemptions = sum(lost.preemptions(job) for lost in LOST)
    return retries.attempts_more(
        job, str(PLAN.layout.root), preemptions=preemptions, since=BEGAN
    )


onstart:
    # Jobs all stay alive: only what comes after them is looked at.
    gc.freeze()
    gc.enable()
    if workflow.is_main_process and not workflow.touch:
        before_the_first_job()
    # Only if jobs run on this machine: never in a dry run, never for or on a cluster.
    if workflow.is_main_process and workflow.local_exec and not workflow.touch:
        # An image has no such shell in it.
        if EXPERIMENT.launcher == "warm" and deployed() != "apptainer":
            executable, reason = launch.start(
                also=("snakemake.iocontainers", "snakemake.logging")
            )
            if executable is None:
                logger.info(f"Jobs start as plain processes: {reason}.")
            else:
                shell.executable(executable)


onerror:
    # What Snakemake itself prints of a killed job is gone when somebody looks at the status.
    if workflow.is_main_process and workflow.local_exec:
        failures.record_killed(
            workflow.scheduler.failed, str(PLAN.layout.root), since=BEGAN
        )
