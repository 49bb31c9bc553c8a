#!/usr/bin/env bash
# Install locked packages with their hashes, and wallscope in place, into .venv:
#     constraints/install.sh constraints/run.txt
# uv installs, where it is found or a pinned uv can be installed into build/uv; else pip does, more slowly.
set -euo pipefail
cd "$(dirname "$0")/.."
lock="$1"
fail() { echo "wallscope: $*" >&2; exit 2; }

named="${PYTHON:-python3}"
candidates=("$named")
if [ "$named" = python3 ]; then candidates+=(python3.14 python3.13 python3.12 python3.11); fi
python=""
for candidate in "${candidates[@]}"; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then python="$candidate" && break; fi
done
[ -n "$python" ] || fail "$named is absent or older than Python 3.11. Install a newer one, or name it: PYTHON=/path/to/python3.12"
[ -x .venv/bin/python ] || "$python" -m venv --without-pip .venv || fail "$python could not create .venv. On Debian and Ubuntu, run: apt install python3-venv"

make_pip() { # in build/uv, so that .venv holds what is locked and nothing else
    [ -x build/uv/bin/pip ] || "$python" -m venv build/uv || fail "$python could not create build/uv. On Debian and Ubuntu, run: apt install python3-venv (or install uv)"
}
run_pip() { build/uv/bin/python -m pip --quiet --disable-pip-version-check "$@"; }
find_uv() {
    uv="$(command -v uv || true)"
    if [ -n "$uv" ]; then return; fi
    uv=build/uv/bin/uv
    make_pip
    run_pip install --require-hashes --requirement constraints/uv.txt || { uv="" && return; }
    index="${PIP_INDEX_URL:-$(run_pip config get global.index-url 2> /dev/null || true)}" # uv does not read pip's configuration
    if [ -n "$index" ]; then export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"; fi
}
with_uv() {
    "$uv" pip install --quiet --python .venv/bin/python --require-hashes --no-deps --requirement "$lock" &&
        "$uv" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
}
with_pip() {
    make_pip
    run_pip --python .venv/bin/python install --require-hashes --no-deps --no-compile --requirement "$lock" &&
        run_pip --python .venv/bin/python install --no-deps --no-build-isolation --no-compile --editable .
}
export WALLSCOPE_PLAIN=1 # the kernels are compiled after this
find_uv
if [ -n "$uv" ] && with_uv; then exit; fi
echo "uv could not install $lock: trying pip" >&2
with_pip || fail "$lock could not be installed, as the lines above say. Check that a package registry is reachable"
