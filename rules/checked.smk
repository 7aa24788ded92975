"""What the invariants of a run, and of an audited round, are checked on: the same files by name for each round."""

AUDIT_INVARIANTS = f"{AUDIT}/invariants.parquet"


def checked_round(wildcards, round):
    """The artifacts of one round of a run, by the names of `turncredit.analysis.invariants.RoundFiles`.

    The policy that sampled is read where it is kept anyway: always in round 1, later with `keep_policies: all`.
    """
    at = type(wildcards)(fromdict={**dict(wildcards.items()), "round": f"{round:02d}"})
    side = side_tables(at)
    kept = round == 1 or EXPERIMENT.keep_policies == "all"
    return {
        "run": at.method,
        "seed": int(at.seed),
        "round": round,
        "turns": turns_of(at),
        "credits": {at.method: f"{RUN}/credits.parquet".format(**at)},
        "values": {at.method: side["values"]} if "values" in side else {},
        "labels": [side["labels"]] if "labels" in side else [],
        "beside": [("hiddens", hiddens_of(at))] if "values" in side else [],
        "updates": f"{RUN}/updates.parquet".format(**at),
        "evals": (
            f"{RUN}/evals.parquet".format(**at)
            if round in EXPERIMENT.eval_rounds()
            else None
        ),
        "policy": policy_before(at) if kept else None,
    }


#: the rounds of each run, found once: a job's inputs and its parameters both name them
CHECKED = {}


def checked_rounds(wildcards):
    """All rounds of a run."""
    run = wildcards.method, wildcards.seed
    if run not in CHECKED:
        CHECKED[run] = [
            checked_round(wildcards, round) for round in range(1, EXPERIMENT.rounds + 1)
        ]
    return CHECKED[run]


def checked_audit(wildcards):
    """An audited round: the credits of all methods on the run's rollouts, and the tables that the audit made."""
    results = [
        pattern.format(**wildcards)
        for pattern in AUDIT_RESULTS
        if pattern.endswith(".parquet") and pattern != AUDIT_INVARIANTS
    ]
    learned = of_methods(wildcards, audit_learned())
    return {
        "run": wildcards.run,
        "seed": int(wildcards.seed),
        "round": int(wildcards.round),
        "turns": audited_turns(wildcards),
        "credits": dict(zip(audit_methods(), audit_credits(wildcards))),
        "values": dict(zip(audit_learned(), audit_values(wildcards))),
        "labels": audited_labels(wildcards),
        "beside": [
            *(
                ("hiddens", path)
                for path in sorted({audit_hiddens_of(at) for at in learned})
            ),
            *((Path(path).stem, path) for path in results),
        ],
        "updates": None,
        "evals": None,
        "policy": None,
    }


def files_of(rounds):
    """Every file of these rounds, each once."""
    found = []
    for files in rounds:
        found += [files[name] for name in ("turns", "updates", "evals", "policy")]
        found += [*files["credits"].values(), *files["values"].values()]
        found += [*files["labels"], *(path for _, path in files["beside"])]
    return [path for path in dict.fromkeys(found) if path]


def all_invariants():
    """The invariants of every run."""
    return [
        f"{RESULTS}/runs/{method}/seed{seed}/invariants.parquet"
        for method, seed in EXPERIMENT.runs()
    ]
