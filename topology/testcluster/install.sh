#!/bin/sh
# Installs the jars of Apache Kafka that the tests start, by Maven, into
# ${VARVE_TEST_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/varve-test}/kafka-VERSION. Does nothing when they are there.
# Needs a JDK of 17 or later and Maven.
set -eu

kafka=4.1.1
scala=2.13
log4j=2.25.1

tools=${VARVE_TEST_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/varve-test}
target=$tools/kafka-$kafka

if [ -f "$target/complete" ]; then
	echo "Apache Kafka $kafka is in $target"
	exit 0
fi
for tool in java mvn; do
	if ! command -v "$tool" >/dev/null; then
		echo "install.sh: $tool is not there: install a JDK of 17 or later and Maven" >&2
		exit 1
	fi
done

mkdir -p "$tools"
work=$(mktemp -d "$tools/install.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM

cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>test</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_$scala</artifactId>
      <version>$kafka</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>$log4j</version>
    </dependency>
  </dependencies>
</project>
POM

(cd "$work" && mvn --batch-mode --quiet dependency:copy-dependencies -DoutputDirectory="$work/kafka/lib")
if [ ! -f "$work/kafka/lib/kafka_$scala-$kafka.jar" ]; then
	echo "install.sh: Maven ended without the jar of Kafka in $work" >&2
	exit 1
fi
: >"$work/kafka/complete"
# The folder appears whole or not at all, also when two of these run at once.
if ! mv -T "$work/kafka" "$target" 2>/dev/null && [ ! -f "$target/complete" ]; then
	rm -rf "$target"
	mv "$work/kafka" "$target"
fi
echo "Apache Kafka $kafka is in $target"
