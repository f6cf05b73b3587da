# Runs one command of a session: sh -c THIS sh MARK CWD STDIN_BYTES COMMAND...
# Only what every /bin/sh has built in is used, except `head` where there is input.
#
# The limit on resident memory has no effect on Linux; all that the command starts inherits it, in whatever
# session or with whatever parent: it is the mark to kill by. Once it is set, "ready" is answered and one
# line taken, a token that the command cannot know: where the engine is gone by then, nothing runs.
# Both outputs end with the token; what comes later is a background child's.
ulimit -m "$1" || exit 1
echo ready
IFS= read -r token || exit 0
cd -- "$2" 2>/dev/null || { printf '%s cwd 0 0\n' "$token"; printf '%s\n' "$token" >&2; exit; }
size=$3
shift 3
exec 3>&1 4>&2 2>/dev/null
if [ "$size" = 0 ]; then
    (exec "$@") </dev/null >&3 2>&4 3>&- 4>&-
else
    head -c "$size" | (exec "$@") >&3 2>&4 3>&- 4>&-
fi
code=$?
kills=0
for file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
    [ -r "$file" ] && while read -r name value; do [ "$name" = oom_kill ] && kills=$value; done <"$file"
done
printf '%s exit %s %s\n' "$token" "$code" "$kills" >&3
printf '%s\n' "$token" >&4
[ "$size" = 0 ] || cat >/dev/null # whoever ends the connection first may lose what is still in it
exit "$code"
