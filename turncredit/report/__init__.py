"""What a person reads about an experiment: tables, figures and verdicts."""
