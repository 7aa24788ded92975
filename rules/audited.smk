"""The audit: which turns it looks at, which methods it compares, and where their credit lies."""

AUDIT = f"{RESULTS}/audit/{{run}}/seed{{seed}}/round{{round}}"
#: What the audit makes of each audited round beside the credits: `AUDIT_RESULTS.append(f"{AUDIT}/fidelity.parquet")` in
#: the file of the rule that makes it.
AUDIT_RESULTS = []


wildcard_constraints:
    run=r"[A-Za-z][A-Za-z0-9_]*",
    read="sft|current",


def of_run(wildcards):
    """The wildcards of the audited run itself, whose rollouts the audit reads."""
    return type(wildcards)(
        fromdict={**dict(wildcards.items()), "method": wildcards.run}
    )


def audited_turns(wildcards):
    """The rollouts of the audited run in the round: the same for every method."""
    return turns_of(of_run(wildcards))


def audited_policy(wildcards):
    """The policy that sampled them."""
    return policy_before(of_run(wildcards))


def audited_labels(wildcards):
    """All labels of these turns that methods of the audit read, each file once."""
    beside = dirname(audited_turns(wildcards))
    names = {
        labels_of(name) for name in audit_methods() if "labels" in method_of(name).needs
    }
    return [f"{beside}/{name}" for name in sorted(names)]


def audit_methods():
    """The methods whose credit is compared; the order of `audit_credits`."""
    return list(EXPERIMENT.audit_methods())


def audit_learned():
    """Those of them that have a learned credit model; the order of `audit_models` and `audit_values`."""
    return [name for name in audit_methods() if "values" in method_of(name).needs]


def audit_credits(wildcards):
    """Every method's credit on the audited turns."""
    return [
        f"{AUDIT}/credits/{name}.parquet".format(**wildcards)
        for name in audit_methods()
    ]


def audit_models(wildcards):
    """Every learned method's credit model of the round: trained on the audited run's rounds before."""
    return [f"{AUDIT}/models/{name}".format(**wildcards) for name in audit_learned()]


def audit_values(wildcards):
    """What those models say of the audited turns."""
    return [
        f"{AUDIT}/values/{name}.parquet".format(**wildcards) for name in audit_learned()
    ]


def audit_probes(wildcards):
    """What the stage `values` measured of each learned method's model."""
    return [
        f"{AUDIT}/metrics/values-{name}.json".format(**wildcards)
        for name in audit_learned()
    ]


def audit_hiddens_of(wildcards):
    """The hidden states of the audited turns that the method's model reads. Round 1's are shared with the runs."""
    _, model = credit_model_of(wildcards.method)
    point = "" if model.point == "observation" else f"_{model.point}"
    if int(wildcards.round) == 1:
        return f"{dirname(audited_turns(wildcards))}/hiddens{point}.parquet"
    return f"{AUDIT}/hiddens_{model.read}{point}.parquet".format(**wildcards)


def of_methods(wildcards, names):
    """The wildcards of each of these methods on the audited turns."""
    return [
        type(wildcards)(fromdict={**dict(wildcards.items()), "method": name})
        for name in names
    ]


def learned_labels(wildcards):
    """The labels of the audited turns that each learned method reads beside its values; nothing for most."""
    return {
        at.method: audit_side_tables(at).get("labels", "")
        for at in of_methods(wildcards, audit_learned())
    }


def audit_rounds_before(wildcards):
    """The wildcards of the rounds that the method's model of a round learns from, oldest first."""
    kind, _ = credit_model_of(wildcards.method)
    return [
        type(wildcards)(fromdict={**dict(wildcards.items()), "round": f"{round:02d}"})
        for round in replay_rounds(kind, int(wildcards.round))
    ]


def audit_credits_before(wildcards):
    """A critic learns from the method's credits of those rounds; the other models read no credits."""
    kind, _ = credit_model_of(wildcards.method)
    rounds = audit_rounds_before(wildcards) if kind == "critic" else []
    return [f"{AUDIT}/credits/{{method}}.parquet".format(**at) for at in rounds]


def audit_model_before(wildcards):
    """The method's model of the round before, if there is one."""
    previous = int(wildcards.round) - 1
    if previous == 0:
        return []
    at = {**wildcards, "round": f"{previous:02d}"}
    return f"{AUDIT}/models/{{method}}".format(**at)


def audit_side_tables(wildcards):
    """The side tables that the method reads on the audited turns."""
    beside = dirname(audited_turns(wildcards))
    files = {
        "labels": f"{beside}/{labels_of(wildcards.method)}",
        "values": f"{AUDIT}/values/{{method}}.parquet".format(**wildcards),
    }
    return {name: files[name] for name in method_of(wildcards.method).needs}


def audit_outputs():
    """What the audit makes of every audited seed and round; nothing where `audit.rounds` is empty."""
    outputs = []
    for seed, round in EXPERIMENT.audited():
        at = {
            "run": EXPERIMENT.audit.run,
            "seed": seed,
            "round": f"{round:02d}",
        }
        outputs += audit_credits(at)
        outputs += [pattern.format(**at) for pattern in AUDIT_RESULTS]
    return outputs
