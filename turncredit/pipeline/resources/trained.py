"""Sizes of a trained policy: all of its weights, or an adapter's."""

from __future__ import annotations

from turncredit.config import Experiment
from turncredit.policy.shapes import BYTES, Shapes


def trained_parameters(experiment: Experiment, model: Shapes) -> int:
    """The number of parameters that are trained: all, or an adapter's."""
    lora = experiment.policy.lora
    return model.parameters if lora is None else model.adapter(lora.rank, lora.targets)


def stepped_type(experiment: Experiment) -> str:
    """The type of trained weights: adapters are float32."""
    policy = experiment.policy
    return "float32" if policy.lora else policy.train_dtype


def saved(experiment: Experiment, model: Shapes, *, moments: bool) -> float:
    """Bytes of a trained policy's folder, with or without the optimiser's moments."""
    each = BYTES[stepped_type(experiment)] + (2 * BYTES[experiment.policy.moments_dtype] if moments else 0)
    return each * trained_parameters(experiment, model)
