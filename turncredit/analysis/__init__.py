"""What the artifacts say about credit: fidelity to ground truth, gradients, leaks, invariants."""
