# Kills all processes that bear a mark, and their descendants: sh -c THIS sh MARK_BYTES
# Stopped first, so that none of them starts another meanwhile; then killed; then waited for.
bears_mark() {
    while read -r a b c soft hard rest; do
        case "$a $b $c" in "Max resident set") [ "$hard" = "$mark" ] && return 0 || return 1 ;; esac
    done <"/proc/$1/limits"
    return 1
}
parent_of() {
    parent=
    read -r line <"/proc/$1/stat" || return
    set -- ${line##*) }
    parent=$2
}
stop_more() {
    more=
    for path in /proc/[0-9]*; do
        process=${path#/proc/}
        case "$victims" in *" $process "*) continue ;; esac
        parent_of "$process"
        case "$victims" in
        *" ${parent:-none} "*) ;;
        *) bears_mark "$process" || continue ;;
        esac
        kill -STOP "$process" && victims="$victims$process " && more=yes
    done
    [ -n "$more" ]
}
exec 2>/dev/null
mark=$1
while :; do
    victims=" "
    while stop_more; do :; done
    [ "$victims" = " " ] && exit 0
    for process in $victims; do kill -KILL "$process"; done
done
