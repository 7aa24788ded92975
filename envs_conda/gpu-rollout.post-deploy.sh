#!/bin/bash
# Started by Snakemake from the folder it works in, inside the new environment. `turncredit init` puts the installed
# package in the place of `-e .`.
set -euo pipefail
[ -f Snakefile ] || { echo "start snakemake from the pipeline's own folder, so that it can be installed" >&2; exit 1; }
python -m pip install --no-deps -e .
