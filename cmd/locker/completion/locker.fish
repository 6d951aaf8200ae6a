function __locker_complete
	set -l words (commandline -opc) (commandline -ct)
	locker __complete $words[2..-1] 2>/dev/null
end
complete -c locker -n 'not contains -- -- (commandline -opc)' -f -a '(__locker_complete)'
complete -c locker -n 'contains -- -- (commandline -opc)' -F
