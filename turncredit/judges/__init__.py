"""Judges: a label for each turn (a role, or a score), from rules or from a language model, cached and audited."""
