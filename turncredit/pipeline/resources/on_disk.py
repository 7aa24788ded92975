"""The size of an experiment's results."""

from __future__ import annotations

from turncredit.pipeline.learned_models import shapes
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.assumed import TYPICAL
from turncredit.pipeline.resources.lengths import contexts, mean_response, rebuilds_context, round_turns
from turncredit.pipeline.resources.trained import saved
from turncredit.policy.shapes import BYTES


def disk(plan: Plan) -> dict[str, float]:
    """Bytes of the experiment's results at their largest, by what they are; empty where the model is not known.

    With `keep_policies: last` a run has two policies at a time, the one that a round starts from and the one that it
    makes, and the policies that sampled audited rounds; where one job runs several rounds, the last policy of each job.
    Tables are what their columns take without compression.
    """
    experiment, model = plan.experiment, shapes(plan.experiment)
    if model is None:
        return {}
    runs, rounds, starts = len(experiment.runs()), experiment.rounds, len(experiment.starts())
    last = experiment.keep_policies == "last"
    audited = len({at for at in plan.audited if at.round > 1})
    # A job of rounds keeps its last policy, from which the next job starts.
    kept = min(rounds, 2 if experiment.granularity == "stage" else len(experiment.blocks()) + 1) if last else rounds
    policies = runs * kept + (audited if last else 0)
    implicit = [name for name in experiment.trained() if plan.method(name).reader == "implicit"]
    models = len(implicit) * len(experiment.seeds) * (kept if last else max(0, rounds - 1))
    folder = saved(experiment, model, moments=experiment.update.keep_optimizer)
    base = BYTES["float32" if experiment.policy.source == "scratch" else "bfloat16"] * model.parameters
    length, turns = contexts(experiment, model), round_turns(experiment, model)
    samplings = len(plan.samplings) * len(experiment.seeds)
    sampled_rounds = runs * max(0, rounds - 1) + samplings
    read = length.mean if rebuilds_context(experiment) else TYPICAL.observation + mean_response(experiment)
    # Ids, log-probabilities and texts of a turn; a number a method for its credit.
    a_turn = 4 * read + 8 * mean_response(experiment) + 2000
    learned = [name for name in experiment.trained() if plan.learns(name)]
    hiddens = len(learned) * len(experiment.seeds) * rounds * turns * TYPICAL.turns * model.hidden * 2
    sizes = {
        "base and SFT policies": starts * (base + saved(experiment, model, moments=False)),
        f"policies ({policies}, {f'{kept} of each run at a time' if last else 'all kept'})": policies * folder,
        f"implicit reward models ({models})": models * saved(experiment, model, moments=True),
        "tables of turns": sampled_rounds * turns * TYPICAL.turns * a_turn,
        "hidden states": hiddens,
    }
    return {what: size for what, size in sizes.items() if size}
