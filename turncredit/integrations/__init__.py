"""Methods inside other trainers' loops: one thin file for each trainer (docs/integrations.md).

Each makes a table of turns of the trainer's batch, calls a method and hands the advantages back in the trainer's shape.
"""
