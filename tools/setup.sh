#!/usr/bin/env bash
# Makes a Debian 12 machine ready to build and test: the missing Debian packages, and .venv with the
# Python packages. Does nothing where everything is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake make ninja-build libfmt-dev libxxhash-dev libboost-context-dev nlohmann-json3-dev
          libgtest-dev python3 python3-venv python3-dev)
missing=()
for package in "${packages[@]}"; do
  dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
if ((${#missing[@]})); then
  as_root=()
  ((EUID == 0)) || as_root=(sudo)
  install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
           apt-get install -y -q --no-install-recommends "${missing[@]}")
  echo "Installing ${missing[*]}"
  # Package lists may be missing or stale; fetching them first would cost every other run a minute.
  "${install[@]}" >/dev/null 2>&1 || { "${as_root[@]}" apt-get update -q; "${install[@]}"; }
fi

# The distribution's Python first: its headers are among the packages above.
python=${PYTHON:-/usr/bin/python3}
[[ -x .venv/bin/python ]] || "$python" -m venv .venv
requirements="$(sha256sum tools/requirements.txt | cut -c1-64)"
if [[ "$(cat .venv/.requirements 2>/dev/null)" != "$requirements" ]]; then
  .venv/bin/pip install -q --disable-pip-version-check -r tools/requirements.txt
  echo "$requirements" > .venv/.requirements
fi
