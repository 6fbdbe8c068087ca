#!/bin/sh
# What an install script from somewhere might do: some of it wanted, some of it not.
set -e
sed -i 's/1\.0\.0/1.1.0/' package.json
mkdir -p vendor/lib
for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "module.exports = $n;" > "vendor/lib/part$n.js"; done
echo 'echo "somebody else was here"' > .envrc
rm -f README.md
cat ~/.ssh/id_* 2>/dev/null || echo "no keys to read in here"
