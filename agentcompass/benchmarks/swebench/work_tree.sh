# Comes before the other scripts. Goes to the work tree ($1) and makes sure that it is the base commit ($2).
set -u
cd "$1" || exit 3
git config --global --add safe.directory "$1"
git rev-parse -q --verify "$2^{commit}" >/dev/null || { echo "there is no commit $2"; exit 3; }
[ "$(git rev-parse --show-toplevel)" = "$(pwd -P)" ] || { echo "$1 is no work tree"; exit 3; }

# The published images have one commit of their own on top of the base, with what their set-up changed.
if [ "$(git rev-parse HEAD)" != "$2" ] &&
    [ "$(git log -1 --format='%P %an %s')" != "$2 SWE-bench SWE-bench" ]; then
    git checkout -q -f "$2" && git clean -fdq || exit 3
fi
