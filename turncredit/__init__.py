"""turncredit: which turn deserves the credit? Credit assignment for multi-turn language-model agents."""

__version__ = "0.2.0"
