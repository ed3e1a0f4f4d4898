#!/usr/bin/env bash
# Makes a base image with Debian 12's Python 3.11, for machines that cannot pull images.
#   tools/debootstrap_base.sh IMAGE
# Then: BASE=IMAGE tools/build_image.sh. Needs root, debootstrap and a Docker engine (DOCKER_HOST).
set -euo pipefail

image=${1:?usage: tools/debootstrap_base.sh IMAGE}
[ "$(id -u)" = 0 ] || { echo "debootstrap needs root: run this with sudo." >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }

root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
if ! debootstrap --variant=minbase --include=python3,python3-venv bookworm "$root" >"$root.log" 2>&1; then
  tail -5 "$root.log" >&2
  exit 1
fi
rm -rf "$root.log" "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,info,locale,man}
tar -C "$root" -c . | docker import - "$image" >/dev/null
echo "$image"
