"""The long-run law of a policy, and what the policy does according to it."""
