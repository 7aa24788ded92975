"""Sequences, losses, optimisers, and the two stages that train a policy: warm start and update."""
