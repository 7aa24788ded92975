"""Reading what the pipeline left: statistics, the report, SQL over the artifacts, rollouts in the terminal."""
