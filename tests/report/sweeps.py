"""Points as a sweep makes them, for tests of pages: made up, since a page does not ask how they came about."""

import numpy as np
import pandas as pd


def frame(n, seed=0):
    """Return ``n`` points: some failed, some of the others against a constraint."""
    random = np.random.default_rng(seed)
    failed = random.random(n) < 0.1
    failed[:2] = True, False
    times = [None if bad else int(ps) for bad, ps in zip(failed, random.integers(10**6, 10**10, n), strict=True)]
    return pd.DataFrame(
        {
            "key": [f"point{i:05d}" for i in range(n)],
            "topology": "row4_pe8",
            "S_kv": 1024,
            "TILE_S_KV": random.choice([16, 32, 128, 1024], n),
            "sharding": random.choice(["S_kv=sip,cube,pe", "heads=pe S_kv=cube"], n),
            "cube.memory.bandwidth": random.choice(["0.9 TB/s", "1.2 TB/s"], n),
            "pes": 32,
            "status": np.where(failed, "failed", "done"),
            "error": np.where(failed, "kernel.py:3: scratch is <full>", None),
            "feasible": pd.array([None if bad else random.random() < 0.7 for bad in failed], dtype="boolean"),
            "makespan_ps": pd.array(times, dtype="Int64"),
            "scratch_peak_bytes": pd.array([None if bad else 4096 for bad in failed], dtype="Int64"),
            "hbm_bytes": pd.array([None if bad else 10**6 for bad in failed], dtype="Int64"),
            "link_bytes": pd.array([None if bad else 10**5 for bad in failed], dtype="Int64"),
            "flops": pd.array([None if bad else 10**7 for bad in failed], dtype="Int64"),
            "cost": np.where(failed, np.nan, random.random(n)),
        }
    )
