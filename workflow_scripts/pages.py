"""Pages: turns, branches, credits, values, labels -> a folder of HTML."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("pages", globals().get("snakemake"))
