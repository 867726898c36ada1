"""`python -m fmdp` is the `fmdp` command."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # `python -m` searches the current folder first, where a file may have the name of any module.
    # It is needed only if it contains fmdp itself, and hides no module at the end of the path.
    if not sys.flags.safe_path:
        folder = sys.path.pop(0)
        if folder == os.path.dirname(os.path.dirname(__file__)):  # noqa: PTH120
            sys.path.append(folder)

    from fmdp.cli import main

    sys.exit(main())
