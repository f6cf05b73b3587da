"""What a run shows while it works: tallies, displays and the caller's callback."""
