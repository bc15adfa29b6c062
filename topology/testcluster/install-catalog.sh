#!/bin/sh
# Installs Iceberg's reference REST catalog, by Maven, into
# ${VARVE_TEST_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/varve-test}/catalog-VERSION, and compiles what starts it on
# 127.0.0.1. Does nothing when it is there. Needs a JDK of 17 or later and Maven.
set -eu

iceberg=1.10.0
here=$(cd "$(dirname "$0")" && pwd)
tools=${VARVE_TEST_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/varve-test}
target=$tools/catalog-$iceberg

if [ -f "$target/complete" ] && [ -f "$target/lib/iceberg-aws-bundle-$iceberg.jar" ] && cmp -s "$target/LoopbackCatalog.java" "$here/LoopbackCatalog.java"; then
	echo "Iceberg's REST catalog $iceberg is in $target"
	exit 0
fi
for tool in javac mvn; do
	if ! command -v "$tool" >/dev/null; then
		echo "install-catalog.sh: $tool is not there: install a JDK of 17 or later and Maven" >&2
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
  <artifactId>catalog-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.iceberg</groupId><artifactId>iceberg-core</artifactId><version>$iceberg</version></dependency>
    <dependency><groupId>org.apache.iceberg</groupId><artifactId>iceberg-core</artifactId><version>$iceberg</version><classifier>tests</classifier></dependency>
    <dependency><groupId>org.apache.iceberg</groupId><artifactId>iceberg-aws</artifactId><version>$iceberg</version></dependency>
    <dependency><groupId>org.apache.iceberg</groupId><artifactId>iceberg-aws-bundle</artifactId><version>$iceberg</version></dependency>
    <dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-common</artifactId><version>3.4.1</version>
      <exclusions><exclusion><groupId>org.eclipse.jetty</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>
    <dependency><groupId>org.eclipse.jetty</groupId><artifactId>jetty-server</artifactId><version>11.0.25</version></dependency>
    <dependency><groupId>org.eclipse.jetty</groupId><artifactId>jetty-servlet</artifactId><version>11.0.25</version></dependency>
    <dependency><groupId>org.eclipse.jetty</groupId><artifactId>jetty-util</artifactId><version>11.0.25</version></dependency>
    <dependency><groupId>org.xerial</groupId><artifactId>sqlite-jdbc</artifactId><version>3.46.1.0</version></dependency>
  </dependencies>
</project>
POM

(cd "$work" && mvn --batch-mode --quiet dependency:copy-dependencies -DoutputDirectory="$work/catalog/lib")
mkdir "$work/catalog/classes"
javac -cp "$work/catalog/lib/*" -d "$work/catalog/classes" "$here/LoopbackCatalog.java"
cp "$here/LoopbackCatalog.java" "$work/catalog/"
: >"$work/catalog/complete"
# The folder appears whole or not at all, also when two of these run at once.
if ! mv -T "$work/catalog" "$target" 2>/dev/null; then
	rm -rf "$target"
	mv "$work/catalog" "$target"
fi
echo "Iceberg's REST catalog $iceberg is in $target"
