#!/usr/bin/env bash
# ensure_docker.sh [start|stop|status]: have a container engine, also where no init system starts one.
#   start   do nothing if an engine answers; else start a dockerd of our own (as root), wait until it answers
#   stop    end the dockerd that `start` started, and take back its firewall chains; leave any other alone
# State lies in ${TRIBUNAL_DOCKER_HOME:-/var/tmp/tribunal-docker}. Exit codes: 3 not root, 4 not installed, 6 not ready.
set -euo pipefail
STATE=${TRIBUNAL_DOCKER_HOME:-/var/tmp/tribunal-docker}
PATIENCE_S=${TRIBUNAL_DOCKER_TIMEOUT:-60}

engine() { timeout 5 docker version --format '{{.Server.Version}}' 2>/dev/null; }
our_pid() {
  local pid
  pid=$(cat "$STATE/dockerd.pid" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] && echo "$pid"
}

start() {
  local version
  if version=$(engine); then echo "an engine answers: $version"; return; fi
  [ "$(id -u)" -eq 0 ] || { echo "no engine answers, and only root can start one" >&2; exit 3; }
  command -v dockerd >/dev/null || { echo "dockerd is missing (Debian: apt-get install -y docker.io iptables)" >&2; exit 4; }
  mkdir -p "$STATE"
  exec 9>"$STATE/lock"
  flock -w "$PATIENCE_S" 9
  if ! our_pid >/dev/null && ! engine >/dev/null; then
    # A pid file of a dead dockerd makes a new one refuse when the number is in use again.
    for file in /var/run/docker.pid "$STATE/dockerd.pid"; do
      if [ -e "$file" ] && [ "$(cat "/proc/$(cat "$file")/comm" 2>/dev/null)" != dockerd ]; then rm -f "$file"; fi
    done
    local options=()
    iptables -t nat -L -n >/dev/null 2>&1 || options=(--iptables=false --ip-masq=false)
    setsid nohup dockerd --pidfile "$STATE/dockerd.pid" --log-level warn "${options[@]}" \
      >>"$STATE/dockerd.log" 2>&1 9>&- </dev/null &
  fi
  for _ in $(seq $((PATIENCE_S * 10))); do
    if version=$(engine); then echo "engine ready: $version"; return; fi
    sleep 0.1
  done
  echo "dockerd is not ready after ${PATIENCE_S} s; its log ends:" >&2
  tail -20 "$STATE/dockerd.log" >&2
  exit 6
}

stop() {
  local pid
  if ! pid=$(our_pid); then echo "no dockerd of ours runs"; return; fi
  kill -TERM "$pid"
  for _ in $(seq 150); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  if kill -0 "$pid" 2>/dev/null; then kill -KILL "$pid"; fi
  rm -f "$STATE/dockerd.pid"
  # dockerd leaves its chains and its bridge: only what carries its names is taken back.
  for table in filter nat; do
    iptables-save -t "$table" 2>/dev/null | grep -E '^-A .*(DOCKER|docker0)' | sed 's/^-A/-D/' |
      while read -r rule; do eval "iptables -t $table $rule" 2>/dev/null || true; done
    for chain in $(iptables-save -t "$table" 2>/dev/null | sed -n 's/^:\(DOCKER[^ ]*\) .*/\1/p'); do
      iptables -t "$table" -F "$chain" 2>/dev/null || true
    done
    for chain in $(iptables-save -t "$table" 2>/dev/null | sed -n 's/^:\(DOCKER[^ ]*\) .*/\1/p'); do
      iptables -t "$table" -X "$chain" 2>/dev/null || true
    done
  done
  iptables -P FORWARD ACCEPT 2>/dev/null || true
  ip link del docker0 2>/dev/null || true
  echo "dockerd $pid ended"
}

case ${1:-start} in
  start) start ;;
  stop) stop ;;
  status) engine || { echo "no engine answers"; exit 1; } ;;
  *) echo "usage: $0 start|stop|status" >&2; exit 2 ;;
esac
