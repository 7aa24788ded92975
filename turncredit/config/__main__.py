"""`python -m turncredit.config`: the configuration as JSON schema."""

import json

from turncredit.config import Experiment

if __name__ == "__main__":
    print(json.dumps(Experiment.model_json_schema(), indent=2, sort_keys=True))
