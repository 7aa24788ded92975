#!/bin/sh
# install.sh core|gpu-rollout: one of the environments of envs_conda/ as /opt/turncredit, from the source in this folder.
# TORCH_INDEX, if set, is the package index for torch (docs/running.md).
set -eu
packages="bash ca-certificates python3 python3-venv"
# vLLM's kernels are compiled when it starts: Triton needs a C compiler and Python's headers.
[ "$1" = core ] || packages="$packages gcc libc6-dev python3-dev"
apt-get update
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $packages
rm -rf /var/lib/apt/lists/*
python3 -m venv /opt/turncredit
PATH=/opt/turncredit/bin:$PATH
export PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
[ -z "${TORCH_INDEX:-}" ] || python -m pip install --no-compile --index-url "$TORCH_INDEX" torch==2.13.0
# What pip installs from the conda file stands there alone.
sed -n 's/^      - //p' "envs_conda/$1.yaml" > /tmp/requirements.txt
[ ! -s /tmp/requirements.txt ] || python -m pip install --no-compile -r /tmp/requirements.txt
rm /tmp/requirements.txt
bash "envs_conda/$1.post-deploy.sh"
