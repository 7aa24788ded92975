# The model of a round learns from the rounds before it: the jobs of this rule need nothing of their own round, and run
# beside the policy's update. The first round's model is untrained.

from turncredit.learn.model_settings import replay_rounds


def rounds_before(wildcards):
    """The wildcards of the rounds that the model of a round learns from, oldest first."""
    kind, _ = plan.credit_model(EXPERIMENT, wildcards.method)
    rounds = replay_rounds(kind, int(wildcards.round))
    return [
        type(wildcards)(fromdict={**dict(wildcards.items()), "round": f"{round:02d}"})
        for round in rounds
    ]


def hiddens_before(wildcards):
    """The hidden states of those rounds. An untrained model reads how wide they are, in its own round's."""
    return [hiddens_of(at) for at in rounds_before(wildcards) or [wildcards]]


def credits_before(wildcards):
    """A critic learns from the credits of those rounds; the other models read no credits."""
    kind, _ = plan.credit_model(EXPERIMENT, wildcards.method)
    rounds = rounds_before(wildcards) if kind == "critic" else []
    return [f"{RUN}/credits.parquet".format(**at) for at in rounds]


def model_before(wildcards):
    """The model of the round before, if there is one."""
    if int(wildcards.round) == 1:
        return []
    return f"{RUN}/credit_model".format(
        method=wildcards.method,
        seed=wildcards.seed,
        round=f"{int(wildcards.round) - 1:02d}",
    )


rule credit_model:
    input:
        turns=lambda wildcards: [turns_of(at) for at in rounds_before(wildcards)],
        hiddens=hiddens_before,
        credits=credits_before,
        previous=model_before,
    output:
        model=directory(f"{RUN}/credit_model"),
        metrics=f"{RUN}/metrics/credit_model.json",
    log:
        f"{LOGS}/credit_model/{{method}}-seed{{seed}}-round{{round}}.log",
    conda:
        CORE
    threads: EXPERIMENT.resource("credit_model").threads
    resources:
        **ask("credit_model"),
    params:
        stage="credit_model",
        reads=reads("credit_model"),
    message:
        "Credit model of {wildcards.method}, seed {wildcards.seed}, for round {wildcards.round}"
    script:
        "../workflow_scripts/credit_model.py"
