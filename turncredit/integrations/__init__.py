"""Other trainers: our environments behind their protocols."""
