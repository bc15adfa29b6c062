#!/bin/sh
# Starts one Apache Kafka on 127.0.0.1 in the foreground, for trying things by hand; Ctrl-C ends it.
# usage: start.sh [PORT [DIR]]   PORT: 9092, the controller takes PORT + 1. DIR: its data, default a new folder.
set -eu

kafka=4.1.1
port=${1:-9092}
lib=${VARVE_TEST_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/varve-test}/kafka-$kafka/lib

if [ ! -f "$lib/../complete" ]; then
	echo "start.sh: Apache Kafka $kafka is not in $lib; install it with $(dirname "$0")/install.sh" >&2
	exit 1
fi
dir=${2:-$(mktemp -d)}
mkdir -p "$dir"
config=$dir/server.properties
cat >"$config" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
log.dirs=$dir/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
PROPERTIES
if [ ! -f "$dir/data/meta.properties" ]; then
	id=$(java -cp "$lib/*" kafka.tools.StorageTool random-uuid | tail -n 1)
	java -cp "$lib/*" kafka.tools.StorageTool format -t "$id" -c "$config"
fi
echo "Kafka: 127.0.0.1:$port, data in $dir"
exec java -Xmx1g -cp "$lib/*" kafka.Kafka "$config"
