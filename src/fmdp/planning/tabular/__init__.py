"""Models small enough to be written out: chains, end components, policy iteration."""
