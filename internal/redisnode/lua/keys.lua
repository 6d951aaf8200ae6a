-- This begins scripts. Their KEYS are those of Keys in key.go. All writes come after all reads
-- that could fail, for an error does not undo what a script has written. What the usual
-- case does not need is defined after it, for the server defines functions anew in every
-- call.
--- include "since7"
local moment
local lock, last, queue, ends, facts, due, mark = unpack(KEYS)
