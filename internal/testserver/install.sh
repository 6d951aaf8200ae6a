#!/usr/bin/env bash
# Installs the servers and clients that the tests start, where they are missing: on
# Debian and Ubuntu with apt, elsewhere it says what to install. Where nothing is missing
# it does nothing and needs no network. Nothing that it installs is started, now or with
# the machine, and no database is made: tests start servers of their own. (etcd is not
# here: tests build it.)
set -euo pipefail

# have FILE-OR-COMMAND…: true if one of them is there.
have() {
	for what in "$@"; do
		if command -v "$what" >/dev/null 2>&1 || compgen -G "$what" >/dev/null; then return 0; fi
	done
	return 1
}

packages=()
have gcc clang || packages+=(gcc libc6-dev) # for the race detector and the models
have spin || packages+=(spin)               # looks at the models in spec
have "${LOCKER_REDIS_SERVER:-redis-server}" || packages+=(redis-server)
have '/usr/lib/postgresql/*/bin/initdb' initdb || packages+=(postgresql)
have pgbouncer /usr/sbin/pgbouncer || packages+=(pgbouncer)
# Only the server's program, and what mariadb-install-db calls: the package mariadb-server makes a database and a service.
have mariadbd /usr/sbin/mariadbd || packages+=(mariadb-server-core)
have my_print_defaults || packages+=(mariadb-client-core)
have java || packages+=(default-jre-headless)
[ -n "${LOCKER_ZOOKEEPER_CLASSPATH:-}" ] || have /usr/share/java/zookeeper.jar || packages+=(libzookeeper-java)
have /usr/share/java/curator-recipes.jar || packages+=(libcurator-recipes-java)
have /usr/share/java/bsh.jar || packages+=(bsh) # runs curator.bsh without a compiler
have prometheus || packages+=(prometheus) # evaluates the queries of our dashboard
{ /usr/bin/python3 -c 'import kazoo' || python3 -c 'import kazoo'; } 2>/dev/null || packages+=(python3-kazoo)

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

# Each of these files keeps Debian from starting, or setting up, a server that it
# installs. They are removed again, unless they were there before.
ours=()
trap 'for file in "${ours[@]}"; do root rm -f "$file"; done' EXIT
forbid() { # FILE TEXT
	if [ -e "$1" ]; then return; fi
	ours+=("$1")
	root mkdir -p "$(dirname "$1")"
	printf '%s\n' "$2" | root tee "$1" >/dev/null
	root chmod 755 "$1"
}
forbid /usr/sbin/policy-rc.d $'#!/bin/sh\nexit 101' # start it
forbid /etc/postgresql-common/createcluster.d/lockstile.conf 'create_main_cluster = false'

# Debian still enables the servers to start with the machine. This disables them.
leave_off() {
	if ! have systemctl; then return; fi
	for package in "${packages[@]}"; do
		case $package in
		redis-server | postgresql | pgbouncer | prometheus) root systemctl disable --quiet "$package" || echo "$package could not be disabled" >&2 ;;
		esac
	done
}

echo "Installing ${packages[*]}" >&2
for try in 1 2 3; do
	if root apt-get update -qq && root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null; then
		leave_off
		exit 0
	fi
	echo "apt-get did not succeed (try $try of 3)" >&2
	sleep $((5 * try))
done
exit 1
