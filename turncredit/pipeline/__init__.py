"""How jobs run: the entry point of scripts, live progress, locks, the warm launcher."""
