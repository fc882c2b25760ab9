"""Run the command line as ``python -m forestall.cli``."""

from __future__ import annotations

from forestall.cli import main

if __name__ == "__main__":
    main()
