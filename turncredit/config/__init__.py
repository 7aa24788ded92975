"""The experiment's configuration: typed, closed (a misspelt key is an error), and checked before any job starts.

`load` reads YAML files, later ones override, and turns every mistake into one line that names the key and the nearest
valid one. `python -m turncredit.config` prints the JSON schema, `schemas/config.schema.json`.
"""

from turncredit.config.experiment import Experiment
from turncredit.config.loading import from_mapping, in_sweep, load, names_in_sweep, refuse_lost, validated
from turncredit.config.merging import merge
from turncredit.config.sections import (
    AgentConfig,
    AgentSlice,
    BranchConfig,
    ContinuationsConfig,
    DemosConfig,
    EnvConfig,
    EnvSlice,
    EvalMode,
    LoraConfig,
    LossConfig,
    MethodConfig,
    PolicyConfig,
    ResourceConfig,
    RolloutConfig,
    ScratchConfig,
    SftConfig,
    TrackingConfig,
    UpdateConfig,
)

__all__ = [
    "AgentConfig",
    "AgentSlice",
    "BranchConfig",
    "ContinuationsConfig",
    "DemosConfig",
    "EnvConfig",
    "EnvSlice",
    "EvalMode",
    "Experiment",
    "LoraConfig",
    "LossConfig",
    "MethodConfig",
    "PolicyConfig",
    "ResourceConfig",
    "RolloutConfig",
    "ScratchConfig",
    "SftConfig",
    "TrackingConfig",
    "UpdateConfig",
    "from_mapping",
    "in_sweep",
    "load",
    "merge",
    "names_in_sweep",
    "refuse_lost",
    "validated",
]
