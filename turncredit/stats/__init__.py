"""Statistics that everything above may use: ranks, bootstrap over groups, intervals over seeds and games."""
