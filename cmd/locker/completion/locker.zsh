_locker() {
	local -a lines shown
	lines=(${(f)"$("${words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)"})
	shown=("${(@)lines/$'\t'/  -- }")
	if (( $#lines )); then
		compadd -l -d shown -- "${(@)lines%%$'\t'*}"
	else
		_default
	fi
}
compdef _locker locker
