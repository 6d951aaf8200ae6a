-- arrival is a newcomer's ticket. Nodes of a quorum have different queues and must come to the same
-- ticket.
local arrival = clock
