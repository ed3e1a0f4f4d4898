#!/usr/bin/env bash
# Makes a base image with Debian 12's Python 3.11, for machines that cannot pull images.
#   tools/debian_base.sh IMAGE
# Then: BASE=IMAGE tools/build_image.sh. Needs root, mmdebstrap and a Docker engine (DOCKER_HOST).
set -euo pipefail

image=${1:?usage: tools/debian_base.sh IMAGE}
[ "$(id -u)" = 0 ] || { echo "mmdebstrap needs root here: run this with sudo." >&2; exit 1; }
command -v mmdebstrap >/dev/null || { echo "mmdebstrap is missing: apt-get install mmdebstrap" >&2; exit 1; }

mmdebstrap --quiet --variant=minbase --include=python3,python3-venv \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/info/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  bookworm - | docker import - "$image" >/dev/null
echo "$image"
