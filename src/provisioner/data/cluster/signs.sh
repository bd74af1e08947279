#!/bin/bash
# Tries to hear from each address $@: ping, and the port of ssh. Says a line for each try: ADDRESS HOW alive|silent TEXT.
#
# A refused connection is an answer. What cannot be tried here (no ping) is no line.
export LC_ALL=C
call() {
    local address=$1 said
    command -v ping >/dev/null || return
    if said=$(timeout 8 ping -n -c 2 -W 2 "$address" 2>&1); then
        printf '%s\tping\talive\tanswers\n' "$address"
    else
        said=$(grep -m 1 'packet loss' <<<"$said" || tail -n 1 <<<"$said")
        printf '%s\tping\tsilent\t%s\n' "$address" "$said"
    fi
}
knock() {
    local address=$1 said
    # shellcheck disable=SC2016  # it is expanded by the shell that timeout starts
    if said=$(timeout 5 bash -c 'exec 3<>"/dev/tcp/$1/22"' bash "$address" 2>&1); then
        printf '%s\tssh\talive\tport 22 is open\n' "$address"
    elif [[ $said == *"Connection refused"* || $said == *"Connection reset"* ]]; then
        printf '%s\tssh\talive\tport 22 is refused\n' "$address"
    else
        said=$(tail -n 1 <<<"${said:-timed out}")
        printf '%s\tssh\tsilent\t%s\n' "$address" "${said##*: }"
    fi
}
for address in "$@"; do
    call "$address" &
    knock "$address" &
done
wait
