#!/usr/bin/env bash
# Builds the image for training containers.
#   tools/build_image.sh [IMAGE]      default: tiercel-trainer:latest
# Environment: BASE (base image, with Python 3.11 or later), PYTHON (an interpreter with pip; must be of the base
# image's version), UNCOMPILED (an expression that finds files which no container imports), DOCKER_HOST (the engine).
# Wheels are gathered with pip outside of the build, which needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."

image=${1:-tiercel-trainer:latest}
python=${PYTHON:-.venv/bin/python}
wheels=build/wheels
stamp=$wheels/.gathered

docker version --format '{{.Server.Version}}' >/dev/null 2>&1 || {
  echo "No Docker engine answers: start it, or set DOCKER_HOST." >&2
  exit 1
}

mkdir -p build
exec 9>build/wheels.lock
flock 9 # two builds at once would gather into the same folder

# What has to be gathered, and whether anew: other versions, or other dependencies.
needed=$("$python" - <<'PYTHON'
import pathlib, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
print(*project["dependencies"], *project["optional-dependencies"]["train"], sep="\n")
PYTHON
)
wanted=$({ echo "$needed"; "$python" --version; cat constraints.txt; } | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  rm -rf "$wheels"
  mkdir -p "$wheels/dependencies"
  "$python" -m pip wheel --quiet --wheel-dir "$wheels/dependencies" --constraint constraints.txt \
    --requirement <(echo "$needed")
  echo "$wanted" >"$stamp"
fi
rm -f "$wheels"/tiercel-*.whl
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$wheels" .

docker buildx version >/dev/null 2>&1 || export DOCKER_BUILDKIT=0 # Debian's client has the old builder only
docker build --quiet --network=none --file Dockerfile --tag "$image" \
  ${BASE:+--build-arg BASE="$BASE"} ${UNCOMPILED:+--build-arg UNCOMPILED="$UNCOMPILED"} "$wheels"
