#!/bin/sh
# node.sh version | NODE DATA CLUSTER-ID SETTINGS VOTERS MAIN PEER CONTROLLER ADVERTISED: a broker and a controller of Apache Kafka in one JVM.
# The jars are in the folder that KAFKA_JARS names, else where `python tools/get_kafka.py` puts them.
set -eu
jars=${KAFKA_JARS:-$HOME/.cache/tribunal/kafka/4.3.1}
if [ ! -d "$jars" ]; then
  echo "no folder $jars: python tools/get_kafka.py --version 4.3.1, or set KAFKA_JARS" >&2
  exit 1
fi
if [ "$1" = version ]; then
  number=$(java -XX:TieredStopAtLevel=1 "-Dlog4j2.configurationFile=$jars/log4j2.properties" -cp "$jars/*" kafka.Kafka --version)
  echo "Apache Kafka $number"
  exit
fi
node=$1 data=$2 id=$3 settings=$4 voters=$5 main=$6 peer=$7 controller=$8
shift 8
config=$(dirname "$data")/server.properties
cat > "$config" <<END
log.cleaner.dedupe.buffer.size=2097152
num.network.threads=2
num.io.threads=4
background.threads=4
$settings
process.roles=broker,controller
node.id=$node
log.dirs=$data
controller.quorum.voters=$voters
listeners=MAIN://$main,PEER://$peer,CONTROLLER://$controller
advertised.listeners=MAIN://$1,PEER://$peer
listener.security.protocol.map=MAIN:PLAINTEXT,PEER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PEER
controller.listener.names=CONTROLLER
END
# Kafka has ELR as a feature of the format, and knows no setting of that name.
sed -i '/^eligible\.leader\.replicas\.enable=/d' "$config"
set -- -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.awt.headless=true "-Dlog4j2.configurationFile=$jars/log4j2.properties" -cp "$jars/*"
if [ ! -e "$data/meta.properties" ]; then
  java -Xmx128m "$@" kafka.tools.StorageTool format -t "$id" -c "$config" --feature eligible.leader.replicas.version=1
  find "$data" -type f -exec sync {} +   # Kafka's tool leaves that to the kernel, and what happens within seconds of formatting is not on trial
fi
exec java -Xms64m -Xmx256m "$@" kafka.Kafka "$config"
