"""Report: everything in the experiment's folder -> page, summary table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("report", globals().get("snakemake"))
