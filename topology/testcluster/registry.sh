#!/bin/sh
# Brings Apicurio Registry by Maven into
# ${VARVE_TEST_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/varve-test}/registry-VERSION and runs it, empty, on 127.0.0.1:
#
#     sh topology/testcluster/registry.sh PORT
#
# It speaks Confluent's protocol at http://127.0.0.1:PORT/apis/ccompat/v7, which is what TestRegistryExchange takes as
# VARVE_REGISTRY to record its answers anew. Needs a JDK of 17 or later and Maven.
set -eu

port=${1:?"which port? registry.sh PORT"}
version=2.6.13.Final
tools=${VARVE_TEST_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/varve-test}
target=$tools/registry-$version

if [ ! -f "$target/complete" ]; then
	for tool in java mvn; do
		if ! command -v "$tool" >/dev/null; then
			echo "registry.sh: $tool is not there: install a JDK of 17 or later and Maven" >&2
			exit 1
		fi
	done
	mkdir -p "$tools"
	work=$(mktemp -d "$tools/registry.XXXXXX")
	trap 'rm -rf "$work"' EXIT INT TERM
	mvn -q -B dependency:copy "-Dartifact=io.apicurio:apicurio-registry-app:$version:tar.gz:all" "-DoutputDirectory=$work"
	mkdir "$work/app"
	tar xzf "$work/apicurio-registry-app-$version-all.tar.gz" -C "$work/app"
	touch "$work/app/complete"
	rm -rf "$target"
	mv "$work/app" "$target"
	rm -rf "$work"
	trap - EXIT INT TERM
fi
echo "VARVE_REGISTRY=http://127.0.0.1:$port/apis/ccompat/v7"
cd "$target"
exec java -Xmx400m -Dquarkus.http.host=127.0.0.1 "-Dquarkus.http.port=$port" -jar "apicurio-registry-app-$version-runner.jar"
