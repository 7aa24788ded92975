# With granularity round or run one job runs all stages of some rounds of a run in one process, with the same artifacts
# as with a job per stage (turncredit/pipeline/rounds.py). What methods share (games, the SFT policy and its rollouts)
# and audits remain separate jobs.
#
# The rule declares only the policy after the job's last round. Other jobs that read anything else that the job makes
# name this policy as their input (`reads` and `known` in rules/common.smk). So planning thousands of runs stays fast.
# The output is flagged `update`: Snakemake then keeps the output of a killed or failed job, and the next attempt reuses
# the artifacts that are up to date. This needs keep-incomplete, which profiles/default sets.

if FUSED:

    rule rounds:
        input:
            lambda wildcards: block_inputs(wildcards.method, last_of(wildcards))(
                int(wildcards.seed)
            ),
        output:
            outputs_of_block(),
        wildcard_constraints:
            method="|".join(EXPERIMENT.trained()),
            round="|".join(BLOCKS),
        priority: lambda wildcards: 1000 - BLOCKS[last_of(wildcards)][0]
        conda:
            environment_of(*stages.stages_in("round"), *stages.stages_in("signal"))
        container:
            image_of(*stages.stages_in("round"), *stages.stages_in("signal"))
        threads: lambda wildcards: of_block(wildcards).threads
        resources:
            **ask_of_block(),
        params:
            config=lambda wildcards: block_parts(wildcards.method, last_of(wildcards)),
            rounds=lambda wildcards: list(BLOCKS[last_of(wildcards)]),
        message:
            "Rounds {params.rounds} of {wildcards.method}, seed {wildcards.seed}"
        script:
            "../workflow_scripts/stage.py"
