"""Other trainers: methods inside their loops, and our environments behind their protocol (docs/integrations.md).

A method's file makes a table of turns of the trainer's batch, calls the method and hands the advantages back in the
trainer's shape.
"""
