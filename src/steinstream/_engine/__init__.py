"""Compiled core of the package.

Each module builds on the ones above it:

======================  ==============================================================================================
``compile_clock``       time that compilation takes
``code_cache``          files with machine code
``jit``                 compilation with numba
``by_reference``        named tuples that are passed as one address
``translated_values``   values of translated functions
``translation``         compilation of loops without type inference
``late_calls``          functions that are compiled when compiled code first calls them
``double_double``       exact sums as pairs of doubles
``simd``                vector code from Python expressions
``kernel_pair``         Stein kernel of one pair of draws
``kernel_row``          Stein kernel of one draw with all stored draws, with sums and influences
``base_row``            base kernel of one draw with all stored draws, without scores
``compiled_kernel``     parameters of a kernel and addresses of its rows
``stream_summary``      summary of the stream by kernel halving
``state``               the kept draws as arrays
``penalties``           stream term, costs and pins
``argmax``              search for the draw to remove
``updates``             insert, reject and remove draws
``objective``           KSD^2 and the objective
``step_rule``           floor, budget, monotone rule and cap of a step
``candidates``          choice of the draw to insert and of the draw to remove
``thinning``            the algorithm
``online_stats``        running moments; terms of the bound on E KSD^2
======================  ==============================================================================================

``float32``, ``merging``, ``local_search``, ``baseline_loops``, ``pairwise`` and ``linalg`` hold the
loops of other methods; ``csv_parser`` parses numbers in text files. ``reference`` is the specification of the
algorithms in NumPy: compiled functions name their counterpart there, and only tests import it.

Nothing here validates its input; :mod:`steinstream.validation` does.
"""
