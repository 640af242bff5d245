#!/bin/sh
# Install the Debian/Ubuntu packages given as arguments, if a program they bring is missing.
set -eu

missing=""
for program in arm-none-eabi-gcc qemu-system-arm bwrap; do
    command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
"${PYTHON:-python3}" -c "import ensurepip" 2>/dev/null || { missing="$missing python3-venv"; set -- "$@" python3-venv; }
[ -z "$missing" ] && exit 0

echo "Missing:$missing"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "No apt-get here. Install the GNU Arm embedded toolchain with newlib, QEMU for Arm and bubblewrap, then run make again." >&2
    exit 2
fi
echo "Installing with apt-get: $*"
sudo=""
[ "$(id -u)" -eq 0 ] || sudo="sudo"
$sudo apt-get update -q
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
