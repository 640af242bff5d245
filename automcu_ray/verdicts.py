"""Verdicts on disk, shared by runs: the same candidate is never compiled twice."""

import hashlib
import json
import os
from pathlib import Path

from pydantic import ValidationError

from automcu_ray.feasibility import FeasibilityReport
from automcu_ray.task import Task


class VerdictCache:
    """Feasibility reports by (hash, shapes, target, limits, precision, backend version); one small file each."""

    def __init__(self, folder: Path, task: Task, backend_version: str) -> None:
        self.folder = folder
        limits = [task.target.model_dump(mode="json"), task.ram_limit_bytes, task.flash_limit_bytes, task.precision]
        self.scope = json.dumps([task.input_shape, task.num_classes, *limits, backend_version])

    def get(self, candidate_hash: str) -> FeasibilityReport | None:
        """Return the report, marked as cached, or None. An unreadable file counts as none."""
        try:
            report = FeasibilityReport.model_validate_json(self._path(candidate_hash).read_text())
        except (OSError, ValidationError):
            return None
        return report.model_copy(update={"cached": True, "seconds_by_rung": {}})

    def put(self, candidate_hash: str, report: FeasibilityReport) -> None:
        """Keep a report; another run may be writing the same one."""
        path = self._path(candidate_hash)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(report.model_dump_json(exclude_defaults=True))
        part.replace(path)

    def _path(self, candidate_hash: str) -> Path:
        key = hashlib.sha256(f"{candidate_hash}{self.scope}".encode()).hexdigest()
        return self.folder / key[:2] / f"{key[:32]}.json"


def verdict_folder() -> Path:
    """Return where verdicts are kept for all runs: $AUTOMCU_CACHE, or ~/.cache/automcu_ray."""
    root = os.environ.get("AUTOMCU_CACHE") or Path.home() / ".cache" / "automcu_ray"
    return Path(root) / "verdicts"
