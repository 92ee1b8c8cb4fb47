#!/usr/bin/env bash
# Makes a Debian 12 machine ready: the missing Debian packages, and .venv with Python packages.
#   tools/setup.sh build   what it takes to build and run
#   tools/setup.sh         what it takes to test and format as well
# Does nothing where everything is there already, and prints nothing but what it installs.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
log=build/setup.log
: >"$log"

quietly() { "$@" >>"$log" 2>&1; }
failed() {
  cat "$log" >&2
  echo "tools/setup.sh: $1" >&2
  exit 1
}

packages=(g++ cmake make ninja-build libfmt-dev libxxhash-dev libboost-context-dev libsodium-dev
          nlohmann-json3-dev python3 python3-venv python3-dev)
requirements=tools/requirements.txt
if [[ "${1:-}" == build ]]; then
  requirements=tools/build_requirements.txt
else
  packages+=(libgtest-dev libgmock-dev)
  # Whoever has Rust from elsewhere keeps it.
  command -v cargo >/dev/null || packages+=(cargo)
fi

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
  quietly "${install[@]}" || { quietly "${as_root[@]}" apt-get update -q && quietly "${install[@]}"; } ||
    failed "cannot install ${missing[*]}"
fi

# The distribution's Python first: its headers are among the packages above.
python=${PYTHON:-/usr/bin/python3}
[[ -x .venv/bin/python ]] || quietly "$python" -m venv .venv || failed "cannot make .venv with $python"
wanted="$(sha256sum tools/*requirements.txt | sha256sum | cut -c1-64)"
if [[ "$(cat ".venv/.${requirements#tools/}" 2>/dev/null)" != "$wanted" ]]; then
  echo "Installing the Python packages of $requirements in .venv"
  quietly .venv/bin/pip install -q --disable-pip-version-check -r "$requirements" ||
    failed "cannot install the packages of $requirements"
  echo "$wanted" >".venv/.${requirements#tools/}"
fi
