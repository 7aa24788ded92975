"""Sampling engines: lockstep (ours), transformers' generate, vLLM."""
