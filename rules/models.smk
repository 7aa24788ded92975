"""What learned credit models read: whose hidden states, and which rounds."""

from turncredit.credit_models.settings import replay_rounds


def read_policy(wildcards):
    """The policy whose hidden states the method's model reads: the frozen SFT policy, or the one that sampled."""
    _, model = credit_model_of(wildcards.method)
    return (
        policy_before(wildcards) if model.read == "current" else f"{RESULTS}/sft/policy"
    )


def hiddens_of(wildcards):
    """The hidden states that the method's model reads in a round."""
    _, model = credit_model_of(wildcards.method)
    point = "" if model.point == "observation" else f"_{model.point}"
    return f"{dirname(turns_of(wildcards))}/hiddens{point}.parquet"


def rounds_before(wildcards):
    """The wildcards of the rounds that the model of a round learns from, oldest first."""
    kind, _ = credit_model_of(wildcards.method)
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
    kind, _ = credit_model_of(wildcards.method)
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
