#!/bin/bash
# Started by Snakemake from the folder it works in, inside the new environment. `turncredit init` puts the installed
# package in the place of `-e .`.
set -euo pipefail
[ -f requirements.lock ] || { echo "start snakemake from the pipeline's own folder, so that it can be installed" >&2; exit 1; }
python -m pip install --no-compile --no-deps -r requirements.lock
python -m pip install --no-compile ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0
python -m pip install --no-deps --no-build-isolation -e .
