# Labels are next to the turns they belong to and are named after the judge and the question, so that methods with the
# same question share them. With judge.serve, the job starts the model's server on its own node.

LABEL = "../envs_conda/gpu-rollout.yaml" if EXPERIMENT.judge.serve else CORE
LABEL_IMAGE = "containers/gpu-rollout.sif" if EXPERIMENT.judge.serve else CORE_IMAGE


rule label:
    input:
        unpack(reads("label")),
    output:
        **makes("label"),
    log:
        PLAN.layout.log("label"),
    priority: earlier_first
    conda:
        LABEL
    container:
        LABEL_IMAGE
    threads: threads("label")
    resources:
        **ask("label"),
    params:
        config=part("label"),
    message:
        "Labels ({wildcards.ask}) of the rollouts of {wildcards.policy}, seed {wildcards.seed}, round {wildcards.round}, by {wildcards.judge}"
    script:
        "../workflow_scripts/label.py"
