# Hidden states, for learned credit models. Those of the SFT policy's rollouts are shared by all methods that read them
# at the same point (`hiddens.parquet` after the observation, `hiddens_action.parquet` after the action).


rule hiddens_sft:
    input:
        policy=f"{RESULTS}/sft/policy",
        turns=f"{SHARED_ROLLOUTS}/turns.parquet",
    output:
        hiddens=f"{SHARED_ROLLOUTS}/hiddens{{point}}.parquet",
        metrics=f"{SHARED_ROLLOUTS}/metrics/hiddens{{point}}.json",
    log:
        f"{LOGS}/hiddens/sft-{{sampling}}-seed{{seed}}{{point}}.log",
    wildcard_constraints:
        point="|_action",
    priority: earlier_first
    conda:
        CORE
    threads: EXPERIMENT.resource("hiddens").threads
    resources:
        **ask("hiddens"),
    params:
        stage="hiddens",
        read="sft",
        reads=reads("hiddens"),
    message:
        "Hidden states of the SFT policy's rollouts, seed {wildcards.seed}"
    script:
        "../workflow_scripts/hiddens.py"


rule hiddens:
    input:
        policy=read_policy,
        turns=f"{RUN}/rollouts/turns.parquet",
    output:
        hiddens=f"{RUN}/rollouts/hiddens{{point}}.parquet",
        metrics=f"{RUN}/metrics/hiddens{{point}}.json",
    log:
        f"{LOGS}/hiddens/{{method}}-seed{{seed}}-round{{round}}{{point}}.log",
    wildcard_constraints:
        round=r"0[2-9]|[1-9]\d\d?",
        point="|_action",
    priority: earlier_first
    conda:
        CORE
    threads: EXPERIMENT.resource("hiddens").threads
    resources:
        **ask("hiddens"),
    params:
        stage="hiddens",
        read=lambda wildcards: credit_model_of(wildcards.method)[1].read,
        reads=reads("hiddens"),
    message:
        "Hidden states for {wildcards.method}, seed {wildcards.seed}, round {wildcards.round}"
    script:
        "../workflow_scripts/hiddens.py"
