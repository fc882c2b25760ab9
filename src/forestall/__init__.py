"""forestall: which feasible action makes the desired outcome most likely?"""

__version__ = "0.1.0"
