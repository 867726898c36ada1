"""Installed versions and the self-test, for `fmdp doctor`."""

from fmdp.diagnosis.checks import CHECKS as CHECKS
from fmdp.diagnosis.checks import Outcome as Outcome
from fmdp.diagnosis.checks import run_checks as run_checks
from fmdp.diagnosis.installed import Installation as Installation
from fmdp.diagnosis.installed import examine as examine
