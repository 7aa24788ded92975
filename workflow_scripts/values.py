"""Values: credit model, turns, hiddens -> values table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("values", globals().get("snakemake"))
