#!/bin/sh
# Installs the S3 gateway that the tests start (Versity S3 Gateway, Apache 2.0), by Go's own installer, into
# ${VARVE_TEST_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/varve-test}/versitygw-VERSION. Does nothing when it is there.
set -eu

version=1.8.0

tools=${VARVE_TEST_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/varve-test}
target=$tools/versitygw-$version

if [ -x "$target/versitygw" ]; then
	echo "The S3 gateway $version is in $target"
	exit 0
fi
mkdir -p "$tools"
work=$(mktemp -d "$tools/install.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
# From a folder of its own: the versions of this module are not the gateway's.
(cd "$work" && GOFLAGS=-mod=mod GOBIN="$work/bin" go install "github.com/versity/versitygw/cmd/versitygw@v$version")
# The folder appears whole or not at all, also when two of these run at once.
if ! mv -T "$work/bin" "$target" 2>/dev/null && [ ! -x "$target/versitygw" ]; then
	rm -rf "$target"
	mv "$work/bin" "$target"
fi
echo "The S3 gateway $version is in $target"
