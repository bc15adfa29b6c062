#!/usr/bin/env bash
# Installs the engines that read varve's tables in tests: one Python virtual
# environment with the pinned versions of requirements.txt. Running it again
# changes nothing while the pins are the same.
#
#   topology/readers/install.sh [folder]
#
# The folder is the argument, else "readers" under $VARVE_TEST_TOOLS, which is
# ${XDG_CACHE_HOME:-$HOME/.cache}/varve-test by default.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${1:-${VARVE_TEST_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/varve-test}/readers}
python=${PYTHON:-python3}

if [ -x "$dir/bin/python" ] && cmp -s "$here/requirements.txt" "$dir/installed.txt"; then
  echo "readers: $dir is up to date"
  exit 0
fi

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  echo "readers: $python is too old or missing; PyIceberg needs Python 3.10 or newer (set PYTHON=...)" >&2
  exit 1
fi

# The mark goes first and comes last: an interrupted run is repeated whole.
rm -f "$dir/installed.txt"
mkdir -p "$dir"
"$python" -m venv --clear "$dir"
"$dir/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
cp "$here/requirements.txt" "$dir/installed.txt"
echo "readers: installed in $dir"
