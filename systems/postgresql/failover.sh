#!/bin/sh
# failover.sh start NODE DATA HOST PORT HOST1 HOST2 HOST3 PYTHON WORDS... | ready NODE HOST PORT: nodes 1 and 2 are servers of PostgreSQL, node 1
# first the primary and the other one its standby; node 3 decides who is the primary (keeper.py).
# A server that is not the primary when it starts is made anew as a copy of the primary (pg_basebackup).
set -eu
for folder in /usr/lib/postgresql/*/bin; do PATH=$folder:$PATH; done
here=$(dirname "$0")

# PostgreSQL refuses to run as root, which nodes in namespaces seem to be: in a user namespace of its own the server is somebody else.
as_somebody() {
  if [ "$(id -u)" -ne 0 ]; then "$@"; else unshare --user --map-user=1000 --map-group=1000 -- "$@"; fi
}

asked() { psql --no-psqlrc -Atq -h "$1" -p "$2" -U tribunal -d postgres -c "$3" 2>/dev/null; }

case $1 in
  start)
    node=$2 data=$3 host=$4 port=$5 one=$6 two=$7 three=$8 python=$9
    shift 9
    if [ "$node" -eq 3 ]; then exec "$python" "$here/keeper.py" "$data" "$host" "$port" "$one" "$two"; fi
    primary=
    while [ -z "$primary" ]; do
      primary=$("$python" "$here/keeper.py" ask "$node" "$three" "$port" || sleep 0.1)
    done
    if [ "$primary" -ne "$node" ]; then
      rm -rf "$data/pg"
      if [ "$primary" -eq 1 ]; then from=$one; else from=$two; fi
      until asked "$from" "$port" "SELECT 1" >/dev/null; do sleep 0.1; done
      as_somebody pg_basebackup -D "$data/pg" -d "host=$from port=$port user=tribunal application_name=node$node" \
        --write-recovery-conf --checkpoint fast --no-sync
    elif [ ! -e "$data/pg" ]; then
      as_somebody initdb --pgdata "$data/pg" --username tribunal --auth trust --no-sync --no-instructions
      echo "host all,replication all all trust" >> "$data/pg/pg_hba.conf"
    fi
    set -- postgres -D "$data/pg" -h "$host" -p "$port" -k "" -c dynamic_shared_memory_type=mmap "$@" # nothing in /dev/shm
    if [ "$(id -u)" -ne 0 ]; then exec "$@"; fi
    exec unshare --user --map-user=1000 --map-group=1000 -- setpriv --pdeathsig KILL -- "$@"
    ;;
  ready)
    if [ "$2" -eq 3 ]; then exit 0; fi
    # A standby is ready when it follows; the primary when it answers.
    follows="SELECT NOT pg_is_in_recovery() OR EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')"
    [ "$(asked "$3" "$4" "$follows")" = t ]
    ;;
esac
