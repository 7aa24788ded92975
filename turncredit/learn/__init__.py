"""The stages: from tables and folders to tables and folders."""
