"""How good a credit method is, without training: small decision processes whose values and gradients are exact.

`process` makes them exact, `worlds` are the ten or so that are there, `groups` draws or enumerates groups of rollouts,
`identification` and `validity` measure a method's credit on them, `probes` what a method reads, and `card` puts the
parts together. docs/score.md explains the numbers.
"""
