"""Values: credit model, turns, hiddens -> values table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("values", globals().get("snakemake"))
