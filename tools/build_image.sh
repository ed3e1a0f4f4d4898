#!/usr/bin/env bash
# Builds the image for training containers.
#   tools/build_image.sh [IMAGE]      default: tiercel-trainer:latest
# Environment: BASE (base image, with Python 3.11 or later), PYTHON (an interpreter with pip; must be of the base
# image's version), DOCKER_HOST (the engine). Wheels are gathered with pip outside of the build, which needs no network.
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

# What has to be gathered anew: other versions, or other dependencies.
wanted=$("$python" - <<'PYTHON'
import hashlib, pathlib, sys, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
wanted = [project["dependencies"], project["optional-dependencies"]["train"], pathlib.Path("constraints.txt").read_text()]
print(hashlib.sha256(repr([*wanted, sys.version_info[:2]]).encode()).hexdigest())
PYTHON
)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  rm -rf "$wheels"
  mkdir -p "$wheels/dependencies"
  "$python" -m pip wheel --quiet --wheel-dir "$wheels/dependencies" --constraint constraints.txt '.[train]'
  echo "$wanted" >"$stamp"
fi
rm -f "$wheels"/tiercel-*.whl "$wheels"/dependencies/tiercel-*.whl
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$wheels" .

docker buildx version >/dev/null 2>&1 || export DOCKER_BUILDKIT=0 # Debian's client has the old builder only
docker build --quiet --network=none --file Dockerfile --tag "$image" \
  ${BASE:+--build-arg BASE="$BASE"} "$wheels"
