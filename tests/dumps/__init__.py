"""Dumps of hidden states in the formats of other tools.

They are made here, as each tool's sources say (keys, axes, dtypes, names), and not recorded from a run of it.
"""
