#!/bin/sh
# Known vulnerabilities of the locked versions: scripts/audit.sh PIP_AUDIT CONSTRAINTS
# Fails where one is known, and where nothing could be asked: an audit that saw no package is none.
set -u
report=$(mktemp) && trap 'rm -f "$report"' EXIT
"$1" --requirement "$2" --no-deps --disable-pip --progress-spinner off --format json --output "$report"
status=$?
python3 - "$report" <<'PYTHON' || exit 1
import json, sys

try:
    asked = json.load(open(sys.argv[1]))["dependencies"]
except ValueError:
    asked = []
unknown = [package["name"] for package in asked if "skip_reason" in package]
print(f"{len(asked) - len(unknown)} of {len(asked)} packages audited")
if not asked or unknown:
    sys.exit(f"error: the audit wants an answer from PyPI on every package, found none on {len(unknown) or 'any'}: "
             f"{', '.join(unknown[:5])}. Run it where PyPI's own index can be reached.")
PYTHON
exit $status
