"""`python -m fmdp` is the `fmdp` command."""

from __future__ import annotations

import sys

from fmdp.cli import main

if __name__ == "__main__":
    sys.exit(main())
