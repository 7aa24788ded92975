"""Ground truth for credit: continuations sampled from before and after a turn."""
