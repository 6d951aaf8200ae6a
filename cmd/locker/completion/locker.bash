_locker() {
	local IFS=$' \t\n' words word
	read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
	[[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=("")
	word=${words[${#words[@]}-1]}
	IFS=$'\n'
	COMPREPLY=($("$1" __complete "${words[@]:1}" 2>/dev/null | cut -f1))
	[[ $word == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*:}"}"}")
}
complete -o default -F _locker locker
