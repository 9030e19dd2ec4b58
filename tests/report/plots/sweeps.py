"""Tables of sweep points, made up: the pictures read columns, whatever computed them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd


def sweep(seed: int = 0, **settings: list[object]) -> pd.DataFrame:
    """Return a table with a point for each combination of settings, and random outcomes."""
    rng = np.random.default_rng(seed)
    names = list(settings)
    frame = pd.DataFrame(list(product(*settings.values())), columns=names)
    n = len(frame)
    if "pes" not in frame:
        frame["pes"] = 32
    outcomes = {
        "key": [f"point{i}" for i in range(n)],
        "topology": "row4_pe8",
        "status": "done",
        "error": None,
        "feasible": True,
        "makespan_ps": rng.integers(10**6, 10**8, n),
        "scratch_peak_bytes": rng.integers(10**3, 10**6, n),
        "cost": rng.integers(1, 20, n).astype(float),
    }
    return frame.assign(**outcomes)
