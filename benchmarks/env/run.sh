#!/usr/bin/env bash
# Engine figures and a short conformance run, on the released games below $ALFWORLD_DATA or on exported generated
# ones. Needs the reference packages (alfworld, textworld). Takes two or three minutes on an idle core.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$PWD/.venv/bin:$PATH"
if [[ -n "${ALFWORLD_DATA:-}" ]]; then
    games="$ALFWORLD_DATA/json_2.1.1/valid_seen"
else
    games=$(mktemp -d)
    trap 'rm -rf "$games"' EXIT
    echo "ALFWORLD_DATA is not set: measuring on generated games" >&2
    turncredit env household export "$games" --split eval --count 140 >/dev/null
fi
turncredit env household bench --games "$games" --engine native --count 140 --steps 100
turncredit env household bench --games "$games" --engine native --engine alfworld --engine textworld --count 10 --steps 20
turncredit env household conformance --games "$games" --sample 10 --generated 10 --steps 50
