#!/bin/sh
# install.sh core|gpu-rollout: one of the environments of envs_conda/ as /opt/turncredit, from the source in this folder.
# TORCH_INDEX, if set, is the package index for torch (docs/running.md).
set -eu
packages="bash ca-certificates python3 python3-venv"
# vLLM's kernels are compiled when it starts: Triton needs a C compiler and Python's headers, torch.compile one for C++.
[ "$1" = core ] || packages="$packages g++ python3-dev"
apt-get update
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $packages
rm -rf /var/lib/apt/lists/*
python3 -m venv /opt/turncredit
PATH=/opt/turncredit/bin:$PATH
export PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
[ -z "${TORCH_INDEX:-}" ] || python -m pip install --no-compile --index-url "$TORCH_INDEX" torch==2.13.0
# A folder of its own: where an image is built, /tmp may be the machine's.
work=$(mktemp -d)
# What pip installs from the conda file stands there alone.
sed -n 's/^      - //p' "envs_conda/$1.yaml" > "$work/requirements.txt"
[ ! -s "$work/requirements.txt" ] || python -m pip install --no-compile -r "$work/requirements.txt"
# Not editable (`-e`): Snakemake appends the folders that it imports from to the search path of a job in an image, and these
# come before an editable package, so that the job would run the checkout's code and not the image's.
sed 's/ -e \.$/ ./' "envs_conda/$1.post-deploy.sh" > "$work/post-deploy.sh"
bash "$work/post-deploy.sh"
rm -rf "$work"
# Nobody can write into an image, so every job would compile what it imports. Some files are for other versions of Python.
python -m compileall -qq -j 0 /opt/turncredit/lib || true
