"""Pages: turns, branches, credits, values, labels -> a folder of HTML."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from pathlib import Path

    from turncredit.pages.build import pages

    methods, learned = job.params["methods"], job.params["learned"]
    return pages(
        experiment=job.experiment,
        run=job.wildcards["run"],
        seed=int(job.wildcards["seed"]),
        round=int(job.wildcards["round"]),
        turns=job.input["turns"],
        branches=job.input["branches"],
        credits=dict(zip(methods, job.input["credits"], strict=True)),
        values=dict(zip(learned, job.input["values"], strict=True)),
        probes=dict(zip(learned, job.input["probes"], strict=True)),
        labels={Path(path).stem: path for path in job.input["labels"]},
        out=Path(job.output["index"]).parent,
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
