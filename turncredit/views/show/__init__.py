"""`turncredit show`: rollouts in the terminal, turn by turn, with each method's credit."""
