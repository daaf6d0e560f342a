# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154  # root comes from the caller, jobs goes to it
# What demo.sh and test.sh share; sourced by them, never run. POSIX sh.
# The caller has set $root, the repository's folder, and has `set -eu`.
LC_ALL=C.UTF-8  # plain C cannot unpack below a folder whose name is not ASCII
export LC_ALL

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# Debian 12 is what the package names and the warnings are known for.
is_debian_12() {
  [ -r /etc/os-release ] && (. /etc/os-release && [ "${ID-}" = debian ] && [ "${VERSION_ID-}" = 12 ])
}

# packages SET...: the packages of these sets in packages.txt.
packages() {
  for set_name in "$@"; do
    awk -v set_name="$set_name" '!/^#/ && $2 == set_name { print $1 }' "$root/cmake/packages.txt"
  done
}

# missing_packages SET...: those of them that are not installed.
missing_packages() {
  packages "$@" | while IFS='|' read -r package file; do
    status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) || status=
    if [ "$status" != 'install ok installed' ] && [ ! -f "${file:-/}" ]; then printf '%s ' "$package"; fi
  done
}

# install_packages SET...: installs what is missing, and only then needs root or sudo.
install_packages() {
  if ! is_debian_12; then
    echo 'Not Debian 12: no packages are installed; cmake/packages.txt lists what is needed.'
    return 0
  fi
  missing=$(missing_packages "$@")
  missing=${missing% }
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" = 0 ]; then
    as_root=
  elif sudo -n true 2>/dev/null || { [ -t 0 ] && command -v sudo >/dev/null; }; then
    as_root=sudo
  else
    fail "packages are missing; as root, run: apt-get update && apt-get install --no-install-recommends $missing"
  fi
  say "Installing: $missing"
  for package in $missing; do
    apt-cache show "$package" >/dev/null 2>&1 || { apt_update && break; }
  done
  # Lists can also be too old: they name files that are gone. Update and try once more.
  apt_install || { apt_update && apt_install; } || fail "could not install: $missing"
}

# A machine that has just started may be busy with its own updates: wait for the lock.
apt_update() { $as_root apt-get -q -o DPkg::Lock::Timeout=300 update; }
apt_install() {
  # shellcheck disable=SC2086  # a list of package names
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
    install --no-install-recommends $missing
}

# Compile jobs: one a core, with 2 GB of memory each.
jobs=$(awk -v cores="$(nproc)" '/^MemTotal:/ { n = int($2 / 2000000) } END {
  if (n > cores || n == 0) n = cores; print n }' /proc/meminfo)

check_writable() {
  mkdir -p "$root/build" 2>/dev/null || fail "cannot write to $root"
  foreign=$(find "$root/build" -maxdepth 2 ! -writable | head -n 1)
  [ -z "$foreign" ] || fail "cannot write to $foreign: remove it, or run as its owner"
}

# configure_release [ARGUMENT...]: build/release, which both scripts use. Warnings are errors where
# the compiler is the one that they are known for.
configure_release() {
  check_writable
  werror=OFF
  if is_debian_12; then werror=ON; fi
  (cd "$root" && cmake --preset release -DCUA_WERROR=$werror "$@")
}
