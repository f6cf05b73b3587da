"""Proofs, on the user's own machine, that a fault costs at most the trials in flight."""
