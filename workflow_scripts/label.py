"""Labels: turns -> labels table, by the experiment's judge."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("label", globals().get("snakemake"))
