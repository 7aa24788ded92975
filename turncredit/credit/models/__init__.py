"""Learned credit models: their inputs, their training, and their predictions for each turn."""
