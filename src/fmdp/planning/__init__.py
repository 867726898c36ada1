"""Planners: a frozen object of settings, a verb, an immutable plan with its certificates."""
