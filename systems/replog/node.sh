#!/bin/sh
# node.sh PYTHON NODE DATA CLUSTER-ID SETTINGS VOTERS MAIN PEER CONTROLLER ADVERTISED [LINE]: a broker and a controller of replog in one process.
# LINE: one more of its configuration. The shell does all of it itself: an image need not have more programs than that and Python.
set -eu
python=$1 node=$2 data=$3 id=$4 settings=$5 voters=$6 main=$7 peer=$8 controller=$9
shift 9
config=${data%/*}/server.properties
printf '%s\n' "$settings
process.roles=broker,controller
node.id=$node
log.dirs=$data
controller.quorum.voters=$voters
listeners=MAIN://$main,PEER://$peer,CONTROLLER://$controller
advertised.listeners=MAIN://$1,PEER://$peer
listener.security.protocol.map=MAIN:PLAINTEXT,PEER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PEER
controller.listener.names=CONTROLLER
${2-}" > "$config"
[ -e "$data/meta.properties" ] || "$python" -m replog format --config "$config" --cluster-id "$id"
exec "$python" -m replog combined --config "$config"
