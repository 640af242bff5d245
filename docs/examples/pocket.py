"""How hard a phone in the pocket was moved, beside what a watch measured then: python pocket.py [har.parquet] [folder].

Reads the data of the task `motion`, and writes the watch's rows with a column `movement`: the mean, over a second, of
how far the phone's acceleration is from its own mean over a second, in m/s2 (the measure of Vaha-Ypya et al. 2015,
doi:10.1111/cpf.12127, here sliding). Rows without a phone's at that time are left out.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.ndimage import uniform_filter1d

RATE_HZ = 100
source = Path(sys.argv[1] if len(sys.argv) > 1 else "data/har/har.parquet")
folder = Path(sys.argv[2] if len(sys.argv) > 2 else "data/pocket")
table, parts = pq.read_table(source), []
keys = (
    table.group_by(["subject", "execution"])
    .aggregate([])
    .sort_by([("subject", "ascending"), ("execution", "ascending")])
)
for key in keys.to_pylist():
    mine = pc.and_(pc.equal(table["subject"], key["subject"]), pc.equal(table["execution"], key["execution"]))
    rows = table.filter(mine).sort_by("timestamp")
    phone, watch = (rows.filter(pc.equal(rows["device"], device)) for device in ("sp", "sw"))
    if len(phone) < RATE_HZ or not len(watch):
        continue
    seconds, at = (part["timestamp"].to_numpy() / 1000 for part in (phone, watch))
    even = np.arange(seconds[0], seconds[-1], 1 / RATE_HZ)
    force = np.linalg.norm([phone[name].to_numpy() for name in ("x_acc", "y_acc", "z_acc")], axis=0)
    force = np.interp(even, seconds, force.astype(float))
    movement = uniform_filter1d(np.abs(force - uniform_filter1d(force, RATE_HZ)), RATE_HZ)
    watch = watch.append_column("movement", pa.array(np.interp(at, even, movement)))
    parts.append(watch.filter(pa.array((at >= even[0]) & (at <= even[-1]))))
folder.mkdir(parents=True, exist_ok=True)
made = pa.concat_tables(parts)
pq.write_table(made, folder / "pocket.parquet")
print(f"{len(made)} rows in {folder / 'pocket.parquet'}")
