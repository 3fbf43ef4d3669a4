# Helpers of the scripts of this directory, put in front of each.
set -euE
same() { [ "$1" = "$2" ] || { echo "line $((BASH_LINENO[0] - lib)): expected '$2', found '$1'" >&2; exit 1; }; }
# Runs a command until it succeeds, for at most a minute.
wait_for() {
    local end=$((SECONDS + 60))
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { echo "line $((BASH_LINENO[0] - lib)): in vain: $*" >&2; exit 1; }
        sleep 0.05
    done
}
as() { local user=$1; shift; setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups -- env HOME=/tmp "$@"; }
trap 'echo "line $((LINENO - lib)) failed" >&2' ERR
lib=$LINENO
