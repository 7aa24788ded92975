# With granularity round or run one job runs all stages of some rounds of a run in one process, with the same artifacts
# as with a job per stage (turncredit/pipeline/rounds.py). What methods share (games, the SFT policy and its rollouts)
# and audits remain separate jobs. A method's artifacts depend on its inputs, so methods with the same kinds of inputs
# share rules: one for each block of rounds.
#
# A rule declares what other jobs read: the policy after its last round and, at the end, the run's invariants; for the
# audited runs, everything. This keeps planning thousands of runs fast. Outputs are flagged `update`: Snakemake then
# keeps the outputs of a killed or failed job, and the next attempt reuses the artifacts that are up to date. This needs
# keep-incomplete, which profiles/default sets.


from turncredit.pipeline import rounds as fused


def outputs_of_block(method, block):
    """The artifacts of a block that other jobs read, for all methods like `method`: method and seed stay wildcards."""
    seed = EXPERIMENT.seeds[0]
    passing = fused.passing_policies(PLAN, method, seed, block)
    audited = method in EXPERIMENT.audit.runs and EXPERIMENT.audit.rounds
    patterns = []
    for stage, at in fused.steps_of_block(PLAN, method, seed, block):
        keys = {**at.keys, "method": "{method}", "seed": "{seed}"}
        keys["policy"] = "{method}" if at.policy == method else at.policy
        keys["reader"] = at.reader.replace(
            f"{layout.IMPLICIT}{method}", layout.IMPLICIT + "{method}"
        )
        if audited and stage == "values":  # credit pages show how good the model is
            patterns.append(update(layout.fill(PLAN.layout.metrics(stage), keys)))
        for kind in load(stage).OUTPUTS.values():
            last = kind == "policy" and at.round == block[-1]
            if not (audited or last or stage == "invariants"):
                continue
            folder = layout.ARTIFACTS[kind].folder
            if folder and PLAN.layout.path(kind, at.keys) in passing:
                continue
            path = PLAN.layout.path(kind, keys)
            patterns.append(update(directory(path) if folder else path))
    return patterns


def ask_of_block(method, block):
    """Resources of a block's job: `resources.rounds`, or the largest of its stages' and the sum of their runtimes."""
    return fused.resource_of_block(PLAN, method, EXPERIMENT.seeds[0], block)


def reads_of_block(block):
    @cached_parameters
    def files(wildcards):
        which = wildcards.method, block[0]
        if which not in BLOCK_INPUTS:
            BLOCK_INPUTS[which] = fused.inputs_by_seed(PLAN, wildcards.method, block)
        return BLOCK_INPUTS[which](int(wildcards.seed))

    return files


def parts_of_block(block):
    """Params: each stage's part of the configuration, for each of its rounds."""

    @cached_parameters
    def slices(wildcards):
        if (wildcards.method, block[0]) not in BLOCK_PARTS:
            steps = fused.steps_of_block(
                PLAN, wildcards.method, EXPERIMENT.seeds[0], block
            )
            BLOCK_PARTS[wildcards.method, block[0]] = {
                f"{stage} {at.round:02d}": PLAN.slice(stage, at).model_dump(mode="json")
                for stage, at in steps
            }
        return BLOCK_PARTS[wildcards.method, block[0]]

    return slices


BLOCK_INPUTS, BLOCK_PARTS = {}, {}


def alike(method, at):
    """The keys of a stage of a run, the same for all methods that differ in nothing but their name."""
    names = {
        method: "{method}",
        f"{layout.IMPLICIT}{method}": layout.IMPLICIT + "{method}",
    }
    return {key: names.get(value, value) for key, value in at.keys.items()}


#: methods by the inputs and outputs of their rounds
ALIKE = {}
if FUSED:
    for method, _ in EXPERIMENT.runs():
        first = [method if method in EXPERIMENT.audit.runs else ""] + [
            (stage, alike(method, at))
            for stage, at in fused.steps_of_block(
                PLAN, method, 0, range(1, min(EXPERIMENT.rounds, 2) + 1)
            )
        ]
        ALIKE.setdefault(str(first), []).append(method)

for number, methods in enumerate(ALIKE.values(), start=1):
    for block in EXPERIMENT.blocks():

        rule:
            name:
                f"rounds_{block[0]:02d}_{block[-1]:02d}_{number}"
            input:
                reads_of_block(block),
            output:
                outputs_of_block(methods[0], block),
            wildcard_constraints:
                method="|".join(methods),
            priority: 1000 - block[0]
            conda:
                PLAYING
            container:
                PLAYING_IMAGE
            threads: ask_of_block(methods[0], block).threads
            resources:
                **ask_for(
                    ask_of_block(methods[0], block),
                    f"rounds_{block[0]:02d}_{block[-1]:02d}_{number}",
                ),
            params:
                config=parts_of_block(block),
                rounds=list(block),
            message:
                "Rounds {params.rounds} of {wildcards.method}, seed {wildcards.seed}"
            script:
                "../workflow_scripts/rounds.py"


if ALIKE:
    # A block's outputs are made by its rule; the rules of single stages make the rest (audits, artifacts shared by
    # methods).
    blocks = [
        f"rounds_{block[0]:02d}_{block[-1]:02d}_{number}"
        for number in range(1, len(ALIKE) + 1)
        for block in EXPERIMENT.blocks()
    ]
    workflow.ruleorder(
        *blocks,
        "rollout",
        "measures",
        "continuations",
        "forks",
        "label",
        "hiddens",
        "implicit_model",
        "logprobs",
        "credit_model",
        "values",
        "credit",
        "eval",
    )
