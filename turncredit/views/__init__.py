"""A results folder as tables: SQL views, an experiment's results, MLflow."""
