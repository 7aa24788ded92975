"""Some rounds of a run, or all: every stage from rollouts to evaluation, in one process."""

from turncredit.pipeline import rounds

if __name__ == "__main__":
    rounds.run(globals()["snakemake"])
