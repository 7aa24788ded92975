"""The report of an experiment: tables, figures and verdicts."""
