"""Planning for fleets: many small parts that share nothing but budgets on their actions.

fleet.py finds the parts and budgets of a structure, types.py writes the parts out, pricing.py finds
prices and certifies the bound, rules.py and whittle.py make policies, simulation.py estimates their
gains, and planner.py puts them together.
"""

from fmdp.planning.coupled.planner import Coupled as Coupled
from fmdp.planning.policies.fleet import FleetPolicy as FleetPolicy

__all__ = ["Coupled", "FleetPolicy"]
