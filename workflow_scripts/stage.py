"""The script of every rule: the stage that is called like the rule, or, in a job of several rounds, the whole loop."""

from turncredit.pipeline import script

if __name__ == "__main__":
    script.main(globals().get("snakemake"))
