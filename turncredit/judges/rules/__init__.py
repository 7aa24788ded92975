"""The rubric as rules, one module for each environment's action grammar.

Each module has `read_goal(text)`, `read_turn(turn)` and `judge(goal, before, now, after)`, which gives a role and the
evidence for it. The last sees what a language model would be shown, parsed, and nothing else.
"""
