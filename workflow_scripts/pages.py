"""Pages: turns, branches, credits, values, labels -> a folder of HTML."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("pages", globals().get("snakemake"))
