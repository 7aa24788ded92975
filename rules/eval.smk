rule eval_sft:
    input:
        policy=f"{RESULTS}/sft/policy",
        tasks=f"{RESULTS}/tasks/eval.parquet",
    output:
        evals=f"{RESULTS}/sft/evals/round{{round}}.parquet",
        metrics=f"{RESULTS}/sft/evals/round{{round}}/metrics/eval.json",
    log:
        f"{LOGS}/eval/sft-round{{round}}.log",
    priority: evaluation_later
    conda:
        PLAYING
    threads: EXPERIMENT.resource("eval").threads
    resources:
        **ask("eval"),
    params:
        stage="eval",
        reads=reads("eval"),
    message:
        "Evaluation of the SFT policy on the games of round {wildcards.round}"
    script:
        "../workflow_scripts/evaluate.py"


rule eval:
    input:
        policy=f"{RUN}/policy",
        tasks=f"{RESULTS}/tasks/eval.parquet",
    output:
        evals=f"{RUN}/evals.parquet",
        metrics=f"{RUN}/metrics/eval.json",
    log:
        f"{LOGS}/eval/{{method}}-seed{{seed}}-round{{round}}.log",
    priority: evaluation_later
    conda:
        PLAYING
    threads: EXPERIMENT.resource("eval").threads
    resources:
        **ask("eval"),
    params:
        stage="eval",
        reads=reads("eval"),
    message:
        "Evaluation of {wildcards.method}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/evaluate.py"
