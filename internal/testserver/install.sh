#!/usr/bin/env bash
# Installs what the tests start, where it is missing: on Debian and Ubuntu with
# apt, elsewhere it says what to install. Nothing that it installs is started or
# enabled by it: tests start servers of their own.
set -euo pipefail

# have FILE-OR-COMMAND…: one of them is there.
have() {
	for what in "$@"; do
		if command -v "$what" >/dev/null 2>&1 || compgen -G "$what" >/dev/null; then return 0; fi
	done
	return 1
}

packages=()
have gcc clang || packages+=(gcc libc6-dev) # for the race detector
have "${LOCKER_REDIS_SERVER:-redis-server}" || packages+=(redis-server)

if [ ${#packages[@]} -eq 0 ]; then exit 0; fi
if ! have apt-get; then
	echo "The tests need what Debian calls: ${packages[*]}. Install it and run make test again." >&2
	exit 1
fi

root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }
if [ "$(id -u)" -ne 0 ] && ! have sudo; then
	echo "Not root and no sudo here. As root: apt-get install ${packages[*]}" >&2
	exit 1
fi

# Debian starts the servers that it installs, unless this file says no.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap 'root rm -f $policy' EXIT
	printf '#!/bin/sh\nexit 101\n' | root tee $policy >/dev/null
	root chmod 755 $policy
fi

echo "Installing ${packages[*]}" >&2
for try in 1 2 3; do
	if root apt-get update -qq && root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null; then
		exit 0
	fi
	echo "apt-get did not succeed (try $try of 3)" >&2
	sleep $((5 * try))
done
exit 1
