#!/bin/sh
# node.sh version | NODE DATA HOST PORT PEER ELECTION WORDS...: a server of ZooKeeper, one of the three whose hosts stand before `--`; the rest is for Java.
set -eu
jars=/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar
if [ "$1" = version ]; then exec java -cp "/etc/zookeeper/conf:$jars" org.apache.zookeeper.version.VersionInfoMain; fi
node=$1 data=$2 host=$3 port=$4 peer=$5 election=$6
shift 6
mkdir -p "$data/zookeeper"
echo "$node" > "$data/zookeeper/myid"
{
  printf '%s\n' "dataDir=$data/zookeeper" "clientPortAddress=$host" "clientPort=$port" tickTime=400 initLimit=20 syncLimit=5 \
    admin.enableServer=false maxClientCnxns=0 4lw.commands.whitelist=srvr
  number=0
  while [ "$1" != -- ]; do
    number=$((number + 1))
    echo "server.$number=$1:$peer:$election"
    shift
  done
  shift
} > "$data/zoo.cfg"
exec java -cp "/etc/zookeeper/conf:$jars" -Xmx192m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
  -Dorg.slf4j.simpleLogger.defaultLogLevel=warn "$@" org.apache.zookeeper.server.quorum.QuorumPeerMain "$data/zoo.cfg"
