#!/usr/bin/env bash
# Prints which engines read which tables, each row compared with the model, as
# a Markdown table, and runs the README's and the demo's lines for engines.
# Installs what is missing: the fast engines by install.sh, Spark, Sail and
# Trino by install-slow.sh. One that cannot be installed is left out, and the
# table says so. About twenty minutes on two cores.
#
#   topology/readers/matrix.sh [engine,engine...]     (default: all)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."

engines=${1:-all}
bash topology/readers/install.sh >&2
sh topology/testcluster/install-s3.sh >&2
sh topology/testcluster/install-catalog.sh >&2
for engine in spark sail trino; do
  case ,$engines, in
    *,all,* | *,"$engine",*) bash topology/readers/install-slow.sh "$engine" >&2 || echo "matrix: $engine is left out" >&2 ;;
  esac
done

table=$(mktemp)
log=$(mktemp)
trap 'rm -f "$table" "$log"' EXIT
result=0
export VARVE_SERVERS=1
VARVE_MATRIX=$engines VARVE_MATRIX_OUT=$table go test -count=1 -timeout 45m ./topology/readers/matrix >"$log" 2>&1 || result=$?
VARVE_MATRIX=$engines go test -count=1 -timeout 20m -run 'TestAttachLines|TestDemoLines' ./cmd/varve >>"$log" 2>&1 || result=$?
cat "$table"
[ "$result" = 0 ] || grep -aE '^ *(---|[a-z_]+_test\.go|only)' "$log" | cut -c1-2000 >&2
exit "$result"
