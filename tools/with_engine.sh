#!/usr/bin/env bash
# with_engine.sh COMMAND...: run a command while a container engine is there, if this machine can have one.
# Where none runs and we are root, one is started and stopped again afterwards; one that ran before goes on running.
# In CI (CI=true) it is installed by apt when it is missing; on a user's machine nothing is installed. Without an engine
# the container tests skip, saying why.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ "${CI:-}" = true ] && [ "$(id -u)" -eq 0 ] && ! command -v dockerd >/dev/null && command -v apt-get >/dev/null; then
  echo "installing a container engine"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq docker.io iptables; } >/dev/null 2>&1 ||
    echo "no container engine: apt could not install docker.io" >&2
fi
if "$here/ensure_docker.sh" status >/dev/null 2>&1; then
  echo "an engine answers"
elif "$here/ensure_docker.sh" start; then
  trap '"$here/ensure_docker.sh" stop >/dev/null 2>&1' EXIT
else
  echo "container tests will be skipped" >&2
fi
"$@"
