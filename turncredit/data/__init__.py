"""Child processes: forked workers that share one piece of work, and processes that end with their parent."""
