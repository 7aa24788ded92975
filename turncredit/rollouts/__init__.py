"""Agents play the games of an environment: tasks, demonstrations, rollouts, evaluation."""
