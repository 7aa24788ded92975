# Labels lie beside the turns they belong to and are named after the judge and the question, so that all methods that
# ask the same of the same turns share them. With judge.serve, the job starts the model's server on its own node.

LABEL = "../envs_conda/gpu-rollout.yaml" if EXPERIMENT.judge.serve else CORE


rule label_sft:
    input:
        turns=f"{SHARED_ROLLOUTS}/turns.parquet",
    output:
        labels=f"{SHARED_ROLLOUTS}/labels/{{judge}}-{{ask}}.parquet",
        metrics=f"{SHARED_ROLLOUTS}/metrics/label-{{judge}}-{{ask}}.json",
    log:
        f"{LOGS}/label/sft-{{sampling}}-seed{{seed}}-{{judge}}-{{ask}}.log",
    priority: earlier_first
    conda:
        LABEL
    threads: EXPERIMENT.resource("label").threads
    resources:
        **ask("label"),
    params:
        stage="label",
        cache="results/judge_cache",
        reads=reads("label"),
    message:
        "Labels ({wildcards.ask}) of the SFT policy's rollouts, seed {wildcards.seed}, by {wildcards.judge}"
    script:
        "../workflow_scripts/label.py"


rule label:
    input:
        turns=f"{RUN}/rollouts/turns.parquet",
    output:
        labels=f"{RUN}/rollouts/labels/{{judge}}-{{ask}}.parquet",
        metrics=f"{RUN}/metrics/label-{{judge}}-{{ask}}.json",
    log:
        f"{LOGS}/label/{{method}}-seed{{seed}}-round{{round}}-{{judge}}-{{ask}}.log",
    wildcard_constraints:
        round=r"0[2-9]|[1-9]\d\d?",
    priority: earlier_first
    conda:
        LABEL
    threads: EXPERIMENT.resource("label").threads
    resources:
        **ask("label"),
    params:
        stage="label",
        cache="results/judge_cache",
        reads=reads("label"),
    message:
        "Labels ({wildcards.ask}) for {wildcards.method}, seed {wildcards.seed}, round {wildcards.round}, by {wildcards.judge}"
    script:
        "../workflow_scripts/label.py"
