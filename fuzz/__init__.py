"""Fuzzing of the command line: mutated files, forged checkpoints, options, signals, full disks and closed pipes.

``python -m fuzz`` generates cases from a seed, runs them and reports each one that breaks a promise of
``docs/robustness.md``. ``python -m fuzz.soak`` follows a growing file for an hour under random kills.
"""
