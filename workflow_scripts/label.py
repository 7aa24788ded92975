"""Labels: turns -> labels table, by the experiment's judge."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("label", globals().get("snakemake"))
