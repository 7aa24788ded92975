"""Learned credit models: what they read, how they are trained, what they say of a turn."""
