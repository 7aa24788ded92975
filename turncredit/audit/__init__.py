"""Analyses of credit: fidelity to ground truth, gradients, leaks, invariants."""
