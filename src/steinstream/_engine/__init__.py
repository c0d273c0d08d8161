"""The compiled core. Layers, each resting on the ones before:

``jit`` compiles and caches; ``exact`` adds without rounding; ``lanes`` writes vector code; ``sweep`` runs one draw
against all kept ones; ``store`` holds what is kept, ``moves`` change it; ``thinning`` is the algorithm; ``pairs`` the
KSD of arrays. ``decimals`` reads numbers from text.

Nothing here checks its input: that happens once, at the door (:mod:`steinstream.validation`).
"""
