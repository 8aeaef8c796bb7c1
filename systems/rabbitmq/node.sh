#!/bin/sh
# node.sh version | DATA HOST PORT FIRST MEMBER... -- WORDS...: a node of RabbitMQ with all its files in DATA, a member of the cluster of these hosts.
# It stays this process, so that who kills it kills the node. In a namespace of its own; the daemon that knows Erlang's ports ends with it.
set -eu
if [ "$1" = version ]; then
  cd /usr/lib/rabbitmq/lib  # `rabbitmqctl version` would start a node of Erlang for it
  echo rabbitmq_server-*
  exit
fi
data=$1 host=$2 port=$3 first=$4
shift 4
export HOME="$data" RABBITMQ_MNESIA_BASE="$data/mnesia" RABBITMQ_LOG_BASE="$data/log" RABBITMQ_LOGS=-
export RABBITMQ_NODENAME="rabbit@$host" RABBITMQ_USE_LONGNAME=true RABBITMQ_NODE_IP_ADDRESS="$host" RABBITMQ_NODE_PORT="$port"
# By itself it takes the port 20,000 above, which is among those that the kernel gives to outgoing connections: one may have it when the node starts.
export RABBITMQ_DIST_PORT=$((port + 100))
export RABBITMQ_CONF_ENV_FILE="$data/none" RABBITMQ_ENABLED_PLUGINS_FILE="$data/plugins" RABBITMQ_CONFIG_FILE="$data/rabbitmq.conf"
export RABBITMQ_ADVANCED_CONFIG_FILE="$data/none.config" RABBITMQ_FEATURE_FLAGS_FILE="$data/flags" RABBITMQ_PID_FILE="$data/pid"
export ERL_CRASH_DUMP="$data/erl_crash.dump" NOTIFY_SOCKET="$data/none"  # it stays in the foreground, without a shell around it
: > "$data/plugins"
{
  echo "loopback_users = none"
  echo "log.console.level = warning"
  echo "cluster_partition_handling = pause_minority"
  echo "cluster_formation.peer_discovery_backend = classic_config"
  number=0
  while [ "$1" != -- ]; do
    number=$((number + 1))
    echo "cluster_formation.classic_config.nodes.$number = rabbit@$1"
    shift
  done
  shift
} > "$data/rabbitmq.conf"
# At its first start a node joins the one that is there already: it would make a cluster of its own.
while [ "$host" != "$first" ] && [ ! -e "$data/mnesia" ] && ! python3 "$(dirname "$0")/ready.py" "$first" "$port"; do sleep 1; done
setpriv --pdeathsig KILL epmd &
# RabbitMQ does not sync the file of its feature flags, and a node that finds it empty does not start: whoever runs it would sync it.
setpriv --pdeathsig KILL sh -c 'while sleep 1; do if [ -e "$0" ]; then sync "$0"; fi; done' "$data/flags" &
exec /usr/lib/rabbitmq/bin/rabbitmq-server -setcookie tribunal -kernel net_ticktime 8 +sbwt none "$@"
