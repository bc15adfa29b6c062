#!/bin/sh
# Installs PostgreSQL, which tests of the SQL catalog start, by the system's packages where it is missing and this is
# root, and, where the readers are installed (topology/readers/install.sh), what PyIceberg needs to read such a catalog.
set -eu

tools=${VARVE_TEST_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/varve-test}

if ! command -v initdb >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "install PostgreSQL and run this again" >&2
		exit 1
	fi
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null
fi
python=$tools/readers/bin/python
if [ -x "$python" ] && ! "$python" -c 'import sqlalchemy, psycopg2' 2>/dev/null; then
	"$python" -m pip install --quiet --disable-pip-version-check sqlalchemy==2.1.9 psycopg2-binary==2.9.13
fi
