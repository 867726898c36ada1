"""Policies: tables, timed and randomised policies, and their files."""
