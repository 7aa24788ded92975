#!/bin/bash
# Started by Snakemake from the folder it works in, inside the new environment.
set -euo pipefail
[ -f pyproject.toml ] || { echo "start snakemake from the pipeline's own folder, so that it can be installed" >&2; exit 1; }
python -m pip install --no-deps -e .
