"""Learners: statistics, confidence sets and posteriors, episode rules, and their compositions."""
