#!/usr/bin/env bash
# Installs the engines that take minutes to install and to start: Spark with
# Iceberg's runtime, Sail and Trino, pinned, each in a folder of its own under
# $VARVE_TEST_TOOLS (${XDG_CACHE_HOME:-$HOME/.cache}/varve-test by default).
#
#   topology/readers/install-slow.sh [spark] [sail] [trino]     (default: all)
#
# Spark needs a JDK of 17 or later and Maven; Trino a JDK of 25, which is found
# in JAVA25_HOME, or among those of /usr/lib/jvm.
set -euo pipefail

pyspark=4.0.1
iceberg=1.10.0
pysail=0.7.2
trino=483

tools=${VARVE_TEST_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/varve-test}
python=${PYTHON:-python3}

# have FOLDER PINS says whether a folder holds just that; fresh begins it anew.
have() { [ "$(cat "$tools/$1/installed.txt" 2>/dev/null)" = "$2" ] && echo "readers: $tools/$1 is up to date"; }
fresh() { rm -rf "${tools:?}/$1" && mkdir -p "$tools/$1"; }
done_with() { echo "$2" >"$tools/$1/installed.txt" && echo "readers: installed in $tools/$1"; }

need() {
  for tool in "$@"; do
    command -v "$tool" >/dev/null || { echo "readers: $tool is missing; install it and run this again" >&2; exit 1; }
  done
}

# jars FOLDER DEPENDENCY... copies jars with all that they need.
jars() {
  local into=$1 work
  shift
  work=$(mktemp -d)
  {
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging><dependencies>'
    for d in "$@"; do
      IFS=: read -r group artifact version <<<"$d"
      echo "<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version></dependency>"
    done
    echo '</dependencies></project>'
  } >"$work/pom.xml"
  (cd "$work" && mvn --batch-mode --quiet dependency:copy-dependencies -DoutputDirectory="$into")
  rm -rf "$work"
}

spark() {
  local pins="pyspark $pyspark iceberg $iceberg aws-bundle pandas 2.3.3 pyarrow 21.0.0"
  have spark "$pins" && return
  need java mvn
  fresh spark
  "$python" -m venv "$tools/spark"
  "$tools/spark/bin/python" -m pip install --quiet --disable-pip-version-check "pyspark==$pyspark" pandas==2.3.3 pyarrow==21.0.0
  jars "$tools/spark/jars" "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:$iceberg" "org.apache.iceberg:iceberg-aws-bundle:$iceberg"
  done_with spark "$pins"
}

sail() {
  local pins="pysail $pysail pyspark-client $pyspark"
  have sail "$pins" && return
  fresh sail
  "$python" -m venv "$tools/sail"
  "$tools/sail/bin/python" -m pip install --quiet --disable-pip-version-check "pysail==$pysail" "pyspark-client==$pyspark"
  done_with sail "$pins"
}

java25() {
  local home
  for home in "${JAVA25_HOME:-}" /usr/lib/jvm/*; do
    if [ -n "$home" ] && "$home/bin/java" -version 2>&1 | grep -q 'version "25'; then
      echo "$home/bin/java"
      return
    fi
  done
  echo "readers: Trino $trino needs a JDK of 25; name it in JAVA25_HOME" >&2
  return 1
}

trino() {
  local pins="trino $trino" java
  have trino "$pins" && return
  need mvn
  java=$(java25)
  fresh trino
  jars "$tools/trino/lib" "io.trino:trino-iceberg:$trino" "io.trino:trino-testing:$trino" "io.trino:trino-hdfs:$trino"
  echo "$java" >"$tools/trino/java.txt"
  done_with trino "$pins"
}

[ $# -gt 0 ] || set -- spark sail trino
for engine in "$@"; do
  case $engine in
    spark | sail | trino) "$engine" ;;
    *) echo "readers: unknown engine $engine; there are spark, sail and trino" >&2; exit 2 ;;
  esac
done
