"""Experiments of the paper and further measurements.

This package is not part of the installed package `steinstream`. Run it from the root of the repository:

- ``python -m experiments --list`` lists the experiments of the paper,
- ``python -m experiments NAME`` runs one of them,
- ``python -m experiments.run_all`` runs all of them and updates the result folders of this package,
- ``python -m experiments.animation -o thinning.gif`` draws the animation of the README.

The folders without Python packages (``goodwin-rwm``, ``weights``, ...) contain results. Folders of measurements beyond
the paper also contain the script that produced them, ``run.py``.
"""
