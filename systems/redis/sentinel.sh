#!/bin/sh
# sentinel.sh NODE DATA HOST PORT PRIMARY WORDS...: nodes 1 to 3 are servers, node 1 first the primary; nodes 4 to 6 are their sentinels.
set -eu
node=$1 data=$2 host=$3 port=$4 primary=$5
shift 5
file=$data/node.conf
if [ ! -e "$file" ]; then # who runs writes into it who is primary, and what it has seen
  if [ "$node" -ge 4 ]; then
    printf '%s\n' "sentinel monitor tribunal $primary $port 2" "sentinel down-after-milliseconds tribunal 1000" \
      "sentinel failover-timeout tribunal 4000" > "$file"
  elif [ "$node" -ge 2 ]; then
    echo "replicaof $primary $port" > "$file"
  else
    : > "$file"
  fi
fi
if [ "$node" -ge 4 ]; then
  exec redis-server "$file" --sentinel --bind "$host" --port "$port" --dir "$data" --protected-mode no
fi
exec redis-server "$file" --bind "$host" --port "$port" --dir "$data" --protected-mode no --save "" --appendonly yes --appendfsync always \
  --repl-diskless-sync-delay 0 "$@"
