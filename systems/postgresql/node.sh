#!/bin/sh
# node.sh version | init DIR | start DIR HOST PORT WORDS... | stop DIR | ready HOST PORT: a server of PostgreSQL with its data in DIR.
# PostgreSQL refuses to run as root. For root the server is the user postgres, who may pass through folders that are not
# its own; it keeps the process id, so that who kills or waits for this process kills or waits for the server.
set -eu
for folder in /usr/lib/postgresql/*/bin; do PATH=$folder:$PATH; done

as_postgres() {
  if [ "$(id -u)" -ne 0 ]; then exec "$@"; fi
  exec setpriv --reuid postgres --regid postgres --clear-groups --inh-caps +dac_override --ambient-caps +dac_override \
    --pdeathsig KILL -- "$@"
}

case $1 in
  version) exec postgres --version ;;
  init)
    if [ "$(id -u)" -eq 0 ]; then chown postgres "$2"; fi
    as_postgres initdb --pgdata "$2" --username tribunal --auth trust --no-sync --no-instructions
    ;;
  start)
    data=$2 host=$3 port=$4
    shift 4
    # Processes of a server that was killed end by themselves; its successor refuses to start before they have. One that waits for a lock
    # of another may never see that its server is gone: after five seconds those that still work in this folder are killed.
    until=$(($(date +%s) + 5))
    memory=$(sed -n '7s/^ *[0-9]* *\([0-9]*\).*/\1/p' "$data/postmaster.pid" 2>/dev/null || true)
    while [ -n "$memory" ] && awk -v id="$memory" '$2 == id && $7 > 0 { found = 1 } END { exit !found }' /proc/sysvipc/shm; do
      sleep 0.02
      if [ "$(date +%s)" -ge "$until" ]; then
        for process in /proc/[0-9]*; do
          if [ "$(readlink "$process/cwd" || true)" = "$data" ]; then kill -KILL "${process#/proc/}" || true; fi
        done
      fi
    done
    # Its shared memory is in files of its folder: what is in /dev/shm a server that is killed would leave there.
    as_postgres postgres -D "$data" -h "$host" -p "$port" -k "" -c dynamic_shared_memory_type=mmap "$@"
    ;;
  stop) as_postgres pg_ctl stop --pgdata "$2" --mode fast ;;
  ready) exec pg_isready --quiet --host "$2" --port "$3" --dbname postgres --username tribunal ;;
esac
