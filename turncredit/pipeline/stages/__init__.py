"""One module for each stage of the pipeline: read its inputs, compute, write its outputs."""
