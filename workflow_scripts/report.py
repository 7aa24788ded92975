"""Report: everything in the experiment's folder -> page, summary table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("report", globals().get("snakemake"))
