"""The registry of learners: `LEARNERS.read("psrl,c=0.1")` makes a learner from a text.

Classes are named by their place and imported on first use, so this module lies below all of them
and imports none, not even for type checking: hence `Registry[Any]`.
"""

from __future__ import annotations

from typing import Any

from fmdp._base.registries import Registry

LEARNERS: Registry[Any] = Registry(
    "learner",
    "fmdp.learning.learner:Learner",
    {
        "default": "fmdp.learning.default:Default",
        "psrl": "fmdp.learning.psrl:PSRL",
        "dorl": "fmdp.learning.dorl:DORL",
        "fsrl": "fmdp.learning.fsrl:FSRL",
        "frmax": "fmdp.learning.frmax:FRmax",
        "e3": "fmdp.learning.e3:E3",
        "ucrl-factored": "fmdp.learning.ucrl_factored:UCRLFactored",
        "dbn-ucrl": "fmdp.learning.dbn_ucrl:DBNUCRL",
        "ucrl2": "fmdp.learning.ucrl2:UCRL2",
        "ucrl3": "fmdp.learning.ucrl3:UCRL3",
        "f-ucbvi": "fmdp.learning.f_ucbvi:FUCBVI",
        "f-euler": "fmdp.learning.f_euler:FEULER",
        "imed-rl": "fmdp.learning.imed_rl:IMEDRL",
        "kl-ucrl": "fmdp.learning.kl_ucrl:KLUCRL",
        "kl-ucrl-factored": "fmdp.learning.kl_ucrl:KLUCRLFactored",
        "scal": "fmdp.learning.scal:SCAL",
        "regal": "fmdp.learning.regal:REGAL",
        "slf-ucrl": "fmdp.learning.unknown.slf_ucrl:SLFUCRL",
        "slf-rmax": "fmdp.learning.unknown.rmax:SLFRmax",
        "lse-rmax": "fmdp.learning.unknown.rmax:LSERmax",
        "pmevi": "fmdp.learning.pmevi:PMEVI",
        "tsde": "fmdp.learning.tsde:TSDE",
        "cpsrl": "fmdp.learning.cpsrl:CPSRL",
        "opsrl": "fmdp.learning.opsrl:OPSRL",
        "oracle": "fmdp.learning.oracle:Oracle",
        "random": "fmdp.learning.random:Random",
        "policy": "fmdp.learning.follow:Follow",
    },
)
