#!/usr/bin/env bash
# with_engine.sh COMMAND...: run a command while a container engine is there, if this machine can have one.
# Where none runs and we are root, one is started and stopped again afterwards; one that ran before goes on running.
# In CI (CI=true) it, redis-server, etcd, PostgreSQL, kcat and sshd are installed by apt when they are missing; on a
# user's machine nothing is installed. What cannot be had makes its tests skip, saying why.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ "${CI:-}" = true ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  missing=()
  command -v dockerd >/dev/null || missing+=(docker.io iptables)
  command -v redis-server >/dev/null || missing+=(redis-server)
  command -v etcd >/dev/null || missing+=(etcd-server)
  compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || missing+=(postgresql)
  command -v kcat >/dev/null || missing+=(kcat)
  command -v sshd >/dev/null || missing+=(openssh-server)
  if [ "${#missing[@]}" -gt 0 ]; then
    echo "installing ${missing[*]}"
    apt-get update -qq >/dev/null 2>&1
    for package in "${missing[@]}"; do # one by one: what cannot be had keeps no other from being installed
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null 2>&1 ||
        echo "apt could not install $package: its tests will be skipped" >&2
    done
  fi
fi
if "$here/ensure_docker.sh" status >/dev/null 2>&1; then
  echo "an engine answers"
elif "$here/ensure_docker.sh" start; then
  trap '"$here/ensure_docker.sh" stop >/dev/null 2>&1' EXIT
else
  echo "container tests will be skipped" >&2
fi
"$@"
