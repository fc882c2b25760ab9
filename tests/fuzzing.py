"""How often whatever comes in is made up: ``FORESTALL_FUZZ`` times in every test."""

import os


def tries(few):
    """So often as is asked for; else a few times, to be quick."""
    return int(os.environ.get("FORESTALL_FUZZ", few))
