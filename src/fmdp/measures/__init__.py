"""Measures of difficulty: diameter, spans of the bias, largest spans, mixing time."""

from fmdp.measures.diameter_search import Diameter, diameter
from fmdp.measures.largest_span import LargestSpans, largest_spans
from fmdp.measures.mixing import chain_mixing_time, mixing_time
from fmdp.measures.reachability import is_communicating
from fmdp.measures.record import Measures, measure
from fmdp.measures.regret_bound import psrl_regret_bound
from fmdp.planning.spans import factored_spans, span

__all__ = [
    "Diameter",
    "LargestSpans",
    "Measures",
    "chain_mixing_time",
    "diameter",
    "factored_spans",
    "is_communicating",
    "largest_spans",
    "measure",
    "mixing_time",
    "psrl_regret_bound",
    "span",
]
