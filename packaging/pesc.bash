# bash completion for pesc. Commands, options and choices are read from the help of the installed command, so that this file
# never differs from it.
_pesc() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} help choices
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(pesc 2>/dev/null | sed -n 's/.* pesc \([a-z]*\)  .*/\1/p') help" -- "$current")
        return
    fi
    help=$(pesc "$command" --help 2>/dev/null)
    choices=$(sed -n "s/^ .*$previous \([a-z0-9_|-]*|[a-z0-9_|-]*\) .*/\1/p" <<<"$help" | head -n 1)
    if [ -n "$choices" ] && [[ $previous == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${choices//|/ }" -- "$current")
    elif [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(grep -oE '^ +(-[a-z], )?--[a-z0-9-]+' <<<"$help" | grep -oE -- '--[a-z0-9-]+')" -- "$current")
    fi
}
complete -o default -F _pesc pesc
