"""Statistics: ranks, bootstrap over groups, intervals over seeds and games."""
