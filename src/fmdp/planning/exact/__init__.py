"""The exact planner: value iteration on the elimination engine, with certificates."""
