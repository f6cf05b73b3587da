"""Evaluate agents: any benchmark x any harness x any environment x any model."""
