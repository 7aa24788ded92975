"""How jobs run: what a script calls, progress for a person, locks, warm processes."""
