"""``python -m benchmarks.quality``: see `run`."""

from __future__ import annotations

import os

# Read when NumPy, Numba and JAX are loaded, also by the processes that are started: one thread per process.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from benchmarks.quality.run import main  # noqa: E402

if __name__ == "__main__":
    main()
