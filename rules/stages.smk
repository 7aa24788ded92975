# One rule for each stage, all made here from the stages' records (turncredit/config/stages.py). What a job reads,
# computes and writes is in turncredit/pipeline/stages/<stage>.py; the order of stages in a run is in
# turncredit/pipeline/loop.py.


report: "captions/workflow.rst"


#: Flags of outputs, by stage.
FLAGS = {
    "report": {
        "page": shown("page", "the whole report"),
        "summary": shown("summary", "all numbers"),
        "curves": shown("curves", "learning curves"),
    }
}
#: Wildcards that a rule restricts beyond `wildcard_constraints` of all.
WHERE = {}
#: With `keep_policies: last` a round's policy is deleted once the next round and its evaluation have read it. The last
#: one is kept, and so are those that sampled audited rounds: they are made under the name `update_kept`.
KEPT = ()
if EXPERIMENT.keep_policies == "last":
    FLAGS |= {"update": {"policy": temp}, "implicit_model": {"implicit": temp}}
    WHERE = {
        "update": {"method": f"(?!{kept_policies()}){layout.KEYS['method']}"},
        "update_kept": {"method": f"(?={kept_policies()}){layout.KEYS['method']}"},
    }
    KEPT = (retries.KEPT,)

for name in (*stages.stages(), *KEPT):
    stage = stages.stage(retries.stage_of(name))
    if FUSED and (stage.name == "update" or (WHOLE and stage.name == "invariants")):
        continue  # made by the rule `rounds`

    rule:
        name:
            name
        input:
            unpack(reads(stage.name)),
        output:
            **makes(stage, **FLAGS.get(name, {})),
        log:
            only_start(PLAN.layout.log(stage.name)),
        wildcard_constraints:
            **WHERE.get(name, {}),
        priority: priority_of(stage)
        localrule: is_local(stage)
        conda:
            environment_of(stage)
        container:
            image_of(stage)
        threads: threads(stage.name, name)
        resources:
            **ask(stage.name, name),
        params:
            config=part(stage.name),
        message:
            only_start(stage.message).replace("{", "{wildcards.")
        script:
            "../workflow_scripts/stage.py"
