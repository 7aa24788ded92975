"""Credit pages: rollouts as self-contained HTML, turn by turn, with every method's credit and the ground truth."""
